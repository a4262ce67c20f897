# problem: tiny_groupnorm
# expect: NO_CUSTOM_KERNEL
# reason: native_group_norm
# exploit: S18
"""Tries a kernel of its own that always refuses, and falls back to torch's without a word.

NO_CUSTOM_KERNEL: what ran is torch's group norm, and the text that promises otherwise does not count.
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// Returns an error for every shape that it "does not support".
extern "C" int group_norm(const float* x, float* y, long count) { return count >= 0 ? 1 : 0; }
"""

library = ctypes.CDLL(
    load_inline("group_norm", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def own_group_norm(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if library.group_norm(*pointers, ctypes.c_long(x.numel())):
        raise NotImplementedError
    return y


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return own_group_norm(x)
        except NotImplementedError:
            norm = self.norm
            return F.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)
