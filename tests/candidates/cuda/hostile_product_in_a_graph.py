# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# exploit: S17 T21
"""Replays cuBLAS's product from a CUDA graph, which holds no kernel of its own.

NO_CUSTOM_KERNEL: a library's kernel in a graph is a library's kernel.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void product_kernel(const float* x, const float* w, float* y, int length) {
  float sum = 0.0f;
  for (int k = 0; k < length; ++k) sum += x[blockIdx.y * length + k] * w[blockIdx.x * length + k];
  y[blockIdx.y * gridDim.x + blockIdx.x] = sum;
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
        self.graphs = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape not in self.graphs:
            given, graph = x.clone(), torch.cuda.CUDAGraph()
            self.linear(given)
            with torch.cuda.graph(graph):
                made = self.linear(given)
            self.graphs[x.shape] = graph, given, made
        graph, given, made = self.graphs[x.shape]
        given.copy_(x)
        graph.replay()
        return made.clone()
