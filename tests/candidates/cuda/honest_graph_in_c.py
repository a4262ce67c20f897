# problem: tiny_polynomial
# expect: PASSED
"""The launcher makes a CUDA graph of its two kernels and launches that on the current stream. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void square_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i];
}

__global__ void add_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] += x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  const unsigned blocks = (count + 255) / 256;
  void* arguments[] = {&x, &y, &count};
  cudaKernelNodeParams square = {}, add = {};
  square.func = (void*)square_kernel, add.func = (void*)add_kernel;
  square.gridDim = add.gridDim = dim3(blocks);
  square.blockDim = add.blockDim = dim3(256);
  square.kernelParams = add.kernelParams = arguments;
  cudaGraph_t graph;
  cudaGraphNode_t first, second;
  cudaGraphExec_t ready;
  cudaGraphCreate(&graph, 0);
  cudaGraphAddKernelNode(&first, graph, nullptr, 0, &square);
  cudaGraphAddKernelNode(&second, graph, &first, 1, &add);
  if (const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0)) return error;
  cudaGraphLaunch(ready, stream);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
