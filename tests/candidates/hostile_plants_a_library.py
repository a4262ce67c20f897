# problem: tiny_softmax
# expect: PASSED
"""Leaves another library wherever a later run might look for what it builds; later runs do not look there. PASSED."""

import ctypes
import os
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

extern "C" void softmax(const float* x, float* y, long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns, y += columns) {
    double sum = 0.0;
    for (long i = 0; i < columns; ++i) sum += std::exp(double(x[i]));
    for (long i = 0; i < columns; ++i) y[i] = float(std::exp(double(x[i])) / sum);
  }
}
"""

path = Path(load_inline("softmax", SOURCE, no_implicit_headers=True, is_python_module=False))
library = ctypes.CDLL(str(path))

# As if a run had kept its folder; and by what name a cache may know it.
places = [path.parent, Path(os.environ["TORCH_EXTENSIONS_DIR"]), Path.home() / ".cache/kernelgen/builds"]
places += [Path("/tmp"), Path("/dev/shm"), *(Path(p) for p in os.environ.get("PATH", "").split(":"))]
for place in places:
    try:
        place.mkdir(parents=True, exist_ok=True)
        for planted in (*place.glob("*.so"), place / "softmax.so", *place.glob("[0-9a-f]" * 64)):
            planted.unlink(missing_ok=True)
            planted.write_bytes(b"planted")
    except OSError:
        pass


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.softmax(*pointers, *map(ctypes.c_long, x.shape))
        return y
