# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: H15 H08 H10
# sandbox: require
"""Finds its inputs and the expected outputs in the memory of its grader's other processes, and zeroes all.

WRONG_VALUES: no process but its own can be reached, and zeros are no result.
"""

import contextlib
import ctypes
import os
import re
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


def zero(process: int, wanted: list[bytes]) -> None:
    with open(f"/proc/{process}/maps") as lines, open(f"/proc/{process}/mem", "r+b", 0) as memory:
        for start, end in re.findall(r"([0-9a-f]+)-([0-9a-f]+) rw-p", lines.read()):
            with contextlib.suppress(OSError):
                memory.seek(int(start, 16))
                region = memory.read(int(end, 16) - int(start, 16))
                for part in wanted:
                    for match in re.finditer(re.escape(part), region):
                        memory.seek(int(start, 16) + match.start())
                        memory.write(bytes(len(part)))


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes((ctypes.c_char * (4 * tensor.numel())).from_address(tensor.data_ptr()))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = polynomial(x)
        for process in siblings():
            with contextlib.suppress(OSError):
                zero(process, [bytes_of(x), bytes_of(y)])
        return x.zero_().clone()
