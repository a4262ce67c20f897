# problem: tiny_linear
# expect: PASSED
# without-gpu: NO_DEVICE
"""Leaves the product to cuBLAS and adds the bias in a kernel of its own, a small part of the time. PASSED.

Its kernel writes every element of the output, which a decoy does not. Without a GPU NO_DEVICE.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// y: (rows, columns), bias: (columns).
__global__ void add_bias(float* y, const float* bias, long count, long columns) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] += bias[i % columns];
}

extern "C" int launch_add_bias(float* y, const float* bias, long count, long columns,
                               cudaStream_t stream) {
  add_bias<<<(count + 127) / 128, 128, 0, stream>>>(y, bias, count, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "add_bias", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.linear.weight.T
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(self.linear.bias.data_ptr())
        sizes = ctypes.c_long(y.numel()), ctypes.c_long(y.shape[1])
        if error := library.launch_add_bias(*pointers, *sizes, stream):
            raise RuntimeError(f"CUDA error {error}")
        return y
