# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# exploit: S17 T21
"""Captures torch's operator in a CUDA graph beside a kernel of its own that does nothing, and replays that on copied inputs.

NO_CUSTOM_KERNEL: the kernels of a graph are traced one by one, and have the library's names.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void idle_kernel() {}

extern "C" int idle(cudaStream_t stream) {
  idle_kernel<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "idle", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    graph = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.graph is None:
            library.idle(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            self.x, self.graph = x.clone(), torch.cuda.CUDAGraph()
            torch.addcmul(self.x, self.x, self.x)
            with torch.cuda.graph(self.graph):
                library.idle(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
                self.y = torch.addcmul(self.x, self.x, self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()
