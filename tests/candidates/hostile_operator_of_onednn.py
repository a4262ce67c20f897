# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# reason: mkldnn::
# exploit: S17 S20
"""Calls an operator of torch's that is none of ATen's, oneDNN's product, in place of the reference's.

NO_CUSTOM_KERNEL: it is torch's all the same.
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
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        y = product(x, self.linear.weight, self.linear.bias, "none", [], "")
        library.touch(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()))
        return y
