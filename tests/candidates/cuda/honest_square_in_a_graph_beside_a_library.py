# problem: tiny_two_outputs
# expect: PASSED
"""A CUDA graph of torch's sum and of a kernel that squares, replayed on copied inputs. PASSED."""

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

extern "C" int square(const float* x, float* y, long count, cudaStream_t stream) {
  square_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "square", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def square(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.square(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.graphs = {}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if x.shape not in self.graphs:
            given, graph = x.clone(memory_format=torch.contiguous_format), torch.cuda.CUDAGraph()
            given.sum(dim=1), square(given)
            with torch.cuda.graph(graph):
                made = given.sum(dim=1), square(given)
            self.graphs[x.shape] = graph, given, made
        graph, given, made = self.graphs[x.shape]
        given.copy_(x)
        graph.replay()
        return made[0].clone(), made[1].clone()
