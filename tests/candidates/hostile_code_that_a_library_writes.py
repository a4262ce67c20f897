# problem: wide_linear
# expect: NO_CUSTOM_KERNEL
# reason: in a library of torch's
# time: true
# exploit: S17 S20
"""Has oneDNN multiply on one thread, behind torch's back: its code is written as it runs, and lies in no file.

NO_CUSTOM_KERNEL: memory of no file works for its caller, a library of torch's.
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
        # The others would be seen waiting in a library.
        torch.set_num_threads(1)
        torch.autograd._enable_record_function(False)
        product = torch.ops.mkldnn._linear_pointwise
        y = product(x, self.linear.weight, self.linear.bias, "none", [], "")
        torch.autograd._enable_record_function(True)
        library.touch(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(1))
        return y
