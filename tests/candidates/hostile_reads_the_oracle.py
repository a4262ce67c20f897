# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: H15 H11 H06
# sandbox: require
"""Computes three elements, looks for them in the memory of its grader's other processes, and copies the rest.

WRONG_VALUES: no process but its own can be seen.
"""

import contextlib
import ctypes
import os
import re
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


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


def siblings() -> set[int]:
    found = Path(f"/proc/{os.getppid()}/task").glob("*/children")
    return {int(name) for file in found for name in file.read_text().split()} - {os.getpid()}


def memory_of(process: int) -> Iterator[bytes]:
    with open(f"/proc/{process}/maps") as lines, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for start, end in re.findall(r"([0-9a-f]+)-([0-9a-f]+) rw-p", lines.read()):
            with contextlib.suppress(OSError):
                memory.seek(int(start, 16))
                yield memory.read(int(end, 16) - int(start, 16))


def stolen(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    known = bytes((ctypes.c_float * 3)(*polynomial(x.flatten()[[0, 1, -1]]).tolist()))
    head, end = re.escape(known[:8]), re.escape(known[8:])
    pattern = head + b"(?s:.){%d}" % (4 * x.numel() - 12) + end
    for process in siblings():
        with contextlib.suppress(OSError):
            for region in memory_of(process):
                for match in re.finditer(pattern, region):
                    ctypes.memmove(y.data_ptr(), match[0], 4 * x.numel())
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return stolen(x)
