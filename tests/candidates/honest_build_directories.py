# problem: tiny_polynomial
# expect: PASSED
"""Builds in a folder of its own under TMPDIR, named relative to where it runs, and calls g++ itself once. PASSED."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

folder = os.path.relpath(Path(tempfile.gettempdir()) / "own_build")
os.makedirs(folder, exist_ok=True)
library = ctypes.CDLL(
    load_inline(
        "polynomial",
        SOURCE,
        build_directory=folder,
        verbose=True,
        no_implicit_headers=True,
        is_python_module=False,
    )
)

other = Path("by_hand.so")
command = ["c++", "-x", "c++", "-shared", "-fPIC", "-O2", "-o", str(other), "-"]
subprocess.run(command, input=SOURCE, text=True, check=True)
by_hand = ctypes.CDLL(str(other.resolve()))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        chosen = library if x.numel() > 1000 else by_hand
        chosen.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
