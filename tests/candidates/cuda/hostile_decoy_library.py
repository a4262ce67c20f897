# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# reason: none of its own kernels ran
# exploit: S17 S20
"""Compiles a matrix product that it never launches: cuBLAS computes the result.

NO_CUSTOM_KERNEL: none of the kernels that the text declares is in the trace.
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// x: (rows, length), w: (columns, length), y: (rows, columns).
__global__ void product_kernel(const float* x, const float* w, float* y, int length) {
  float sum = 0.0f;
  for (int k = 0; k < length; ++k) sum += x[blockIdx.y * length + k] * w[blockIdx.x * length + k];
  y[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

extern "C" int product(const float* x, const float* w, float* y, int rows, int columns, int length,
                       cudaStream_t stream) {
  if (rows >= 0) return 0;
  product_kernel<<<dim3(columns, rows), 1, 0, stream>>>(x, w, y, length);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "product", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.linear.weight, self.linear.bias)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        tensors = x, self.linear.weight, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.product(*pointers, len(x), y.shape[1], x.shape[1], stream)
        return y
