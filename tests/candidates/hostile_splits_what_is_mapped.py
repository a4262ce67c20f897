# problem: wide_linear
# needs: numpy
# expect: NO_CUSTOM_KERNEL
# reason: another package
# time: true
# exploit: S17 S20
"""Has numpy multiply, and keeps its own kernel in a folder whose name ends a line in Python, and not in /proc/PID/maps.

NO_CUSTOM_KERNEL: a name ends no line of what is mapped, so that where its threads stand is known.
"""

import ctypes
import os
import shutil

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void touch(float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] += 0.0f;
}
"""

built = load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
if os.path.exists(built):
    os.mkdir("a\x0bb")
    built = shutil.copy(built, os.path.abspath("a\x0bb"))
library = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight.numpy(force=True), self.linear.bias.numpy(force=True)
        y = torch.as_tensor(x.numpy() @ weight.T + bias)
        library.touch(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(1))
        return y
