# problem: large_polynomial
# expect: NO_CUSTOM_KERNEL
# exploit: S22
# slow: torch.compile starts compilers of its own
# alone: on a CPU only time tells what torch.compile made from what the candidate did
"""Has torch.compile write the kernel, with one of its own that nothing calls. NO_CUSTOM_KERNEL."""

import ctypes

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


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Compiling may take longer than a call may, so not in forward.
        options = {"compile_threads": 1, "cpp.vec_isa_ok": True}
        self.compiled = torch.compile(lambda x: x * x + x, dynamic=True, options=options)
        self.compiled(torch.ones(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compiled(x)
