# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: T16 T17
"""Returns buffers that it fills in at the next call, several at a time, as if nobody looked before the end.

WRONG_VALUES: every output is read before the next call.
"""

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

pending: list[tuple[torch.Tensor, torch.Tensor]] = []


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(pending) == 2:
            for given, out in pending:
                out.copy_(polynomial(given))
            pending.clear()
        pending.append((x, torch.zeros_like(x)))
        return pending[-1][1]
