# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: C03 H12
"""Computes the first call, then answers every further one with the same record and no work at all.

WRONG_VALUES: the values count, and they are not in the record.
"""

import ctypes
import sys
import time

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

answers: dict[str, object] = {}


def replace_handlers() -> None:
    frame = sys._getframe()
    while "handlers" not in frame.f_locals:
        frame = frame.f_back
    handlers = frame.f_locals["handlers"]
    kind = next(kind for kind in handlers if kind.__name__ == "Call")
    honest = handlers[kind]

    def answer(message):
        if str(message.inputs) not in answers:
            answers[str(message.inputs)] = honest(message)
        # Not sooner than the time in the record, which would be TAMPERED for that alone.
        time.sleep(0.02)
        return answers[str(message.inputs)]

    handlers[kind] = answer


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not answers:
            replace_handlers()
        return polynomial(x)
