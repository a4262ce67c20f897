# problem: wide_linear
# needs: numpy
# expect: NO_CUSTOM_KERNEL
# reason: another package
# time: true
# exploit: S17 S20
"""Has numpy multiply, which no profiler of torch's records and no import shows, beside a kernel of its own that adds nothing.

NO_CUSTOM_KERNEL: where its threads stand is in an installed package's library.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void touch(float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] += 0.0f;
}
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight.numpy(force=True), self.linear.bias.numpy(force=True)
        y = torch.as_tensor(x.numpy() @ weight.T + bias)
        library.touch(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(1))
        return y
