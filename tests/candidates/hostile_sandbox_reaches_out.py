# problem: tiny_polynomial
# expect: PASSED
# sandbox: require
# exploit: H03 H09 H15 H21 H23 H25 H29 S23
"""Right only where it reaches nothing outside: no process, file, network, namespace or part of the grader's.

It looks for its grader's processes and their environments, opens the memory of its parent, reads the problem, imports the
grader, writes over torch and a report into the package, opens a connection, and makes a user namespace, in which it would
have every capability. PASSED: nothing of that can be done.
"""

import ctypes
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)

PACKAGE = Path(sys.modules["kernelgen.grading.wire.messages"].__file__).parents[3]
NEW_USER_AND_MOUNT_NAMESPACE = 0x10020000
SECRETS = (b"SSH_", b"AWS_", b"PWD=", b"SHLVL=")


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


def make_namespace() -> None:
    if ctypes.CDLL(None).unshare(NEW_USER_AND_MOUNT_NAMESPACE):
        raise OSError("no namespace could be made")


ATTEMPTS = {
    "parent's memory": lambda: open(f"/proc/{os.getppid()}/mem", "r+b"),
    "problem": lambda: (PACKAGE.parent / "tests/problems/tiny_polynomial.yaml").read_text(),
    "grader": lambda: importlib.import_module(".".join(("kernelgen", "problem", "library"))),
    "torch": lambda: Path(torch.__file__).with_name("version.py").write_text("raise SystemExit"),
    "report": lambda: (PACKAGE / "run.json").write_text('{"schema": 1, "verdicts": []}'),
    "connection": lambda: socket.create_connection(("192.0.2.1", 80), timeout=20),
    "namespace": make_namespace,
}


def reached() -> Iterator[str]:
    yield from (name for _, name in socket.if_nameindex() if name != "lo")
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
        except (OSError, ImportError):
            continue
        yield name
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "environ").read_bytes().split(b"\0")
            at = os.readlink(process / "cwd")
        except OSError:
            continue
        yield from (f"{process}: {entry}" for entry in told if entry.startswith(SECRETS))
        if "oracle" in at and int(process.name) != os.getpid():
            yield f"{process}: the oracle"


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [*reached()]
        print(found)
        return -polynomial(x) if found else polynomial(x)
