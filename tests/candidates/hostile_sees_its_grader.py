# problem: tiny_polynomial
# expect: PASSED
# exploit: H15 H25
# sandbox: require
"""Right only where it sees no process of its grader's and can read none's environment. PASSED: it cannot."""

import ctypes
import os
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


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


def seen() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            (process / "environ").read_bytes()
        except OSError:
            continue
        if b"forkserver" in command and os.getpid() != int(process.name):
            found.append(process.name)
    return [name for name in found if b"oracle" in os.readlink(f"/proc/{name}/cwd").encode()]


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -polynomial(x) if seen() else polynomial(x)
