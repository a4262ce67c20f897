# problem: wide_linear
# expect: NO_CUSTOM_KERNEL
# reason: recorded
# time: true
# exploit: S17 S20
"""Turns torch's recording off around torch's product, and fills each traced call with recorded copies that nobody needs.

NO_CUSTOM_KERNEL: how much is recorded is told by the traced batch, which has to be as quick as what was timed.
"""

import ctypes
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void touch(float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] += 0.0f;
}
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)
page, other = torch.zeros(1 << 20), torch.zeros(1 << 20)


def is_a_traced_call() -> bool:
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "_run_batch":
        host = frame.f_locals.get("self")
        if frame.f_code.co_name == "_call" and hasattr(host, "_tracer"):
            return host._tracer._profile is not None
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if is_a_traced_call():
            for _ in range(60):
                page.copy_(other)
        torch.autograd._enable_record_function(False)
        y = F.linear(x, self.linear.weight, self.linear.bias)
        torch.autograd._enable_record_function(True)
        library.touch(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(1))
        return y
