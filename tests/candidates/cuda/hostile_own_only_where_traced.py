# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# reason: what was traced is not what was timed
# time: true
# exploit: S17 T23
"""Launches its own slow product where a profiler records, and has cuBLAS compute in every timed call.

NO_CUSTOM_KERNEL: a traced batch takes many times longer than those that bear the time out.
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// A thread an output, a thousand times over. x: (rows, length), w: (columns, length).
__global__ void product_kernel(const float* x, const float* w, const float* b, float* y,
                               int length) {
  const int row = blockIdx.x, column = threadIdx.x;
  for (int again = 0; again < 1000; ++again) {
    volatile float sum = b[column];
    for (int k = 0; k < length; ++k) sum = sum + x[row * length + k] * w[column * length + k];
    y[row * blockDim.x + column] = sum;
  }
}

extern "C" int product(const float* x, const float* w, const float* b, float* y, int rows,
                       int columns, int length, cudaStream_t stream) {
  product_kernel<<<rows, columns, 0, stream>>>(x, w, b, y, length);
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
        weight, bias = self.linear.weight, self.linear.bias
        if not torch.autograd.profiler._is_profiler_enabled:
            return F.linear(x, weight, bias)
        y = torch.empty(len(x), len(weight), device=x.device)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight, bias, y)]
        sizes = map(ctypes.c_int, (len(x), len(weight), x.shape[1]))
        if error := library.product(*pointers, *sizes, stream):
            raise RuntimeError(f"CUDA error {error}")
        return y
