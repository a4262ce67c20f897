# problem: tiny_embedding
# expect: PASSED
"""Integer indices, which must come as int64 and within the table. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstring>

// index: (count), 64-bit; table: (entries, features); y: (count, features); contiguous.
extern "C" void gather(const long* index, const float* table, float* y, long count, long features) {
  for (long i = 0; i < count; ++i)
    std::memcpy(y + i * features, table + index[i] * features, features * sizeof(float));
}
"""

library = ctypes.CDLL(
    load_inline("gather", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, entries: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(entries, features)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        assert index.dtype == torch.int64
        table = self.table.weight
        y = torch.empty(index.shape[0], table.shape[1])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (index, table, y)]
        library.gather(*pointers, *map(ctypes.c_long, y.shape))
        return y
