# problem: tiny_lending
# expect: PASSED
# warning: `Shrink`
"""Reuses the reference's helper class, constants, imports and what a star import of its brings. PASSED.

KernelBench runs both in one namespace. The helper finds the candidate's `sqrt` there, too.
"""

import ctypes

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * x[i] + x[i];
}
"""
library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


def sqrt(value: float) -> float:
    return pow(value, 0.5)


class ModelNew(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        assert (batch_size, features, floor(width)) == (6, width, width)
        self.shrink = Shrink(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shrink(polynomial(x))
