# problem: tiny_noise
# expect: PASSED
# time: true
"""Draws its noise by torch.randn on the GPU and keeps torch's Dropout, in batches too. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void noisy_tanh_kernel(const float* x, const float* noise, float* y, long n) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i] + noise[i]);
}

extern "C" int noisy_tanh(const float* x, const float* noise, float* y, long n, cudaStream_t stream) {
  noisy_tanh_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, noise, y, n);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "noisy_tanh", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        noise = torch.randn(x.shape, device=x.device)
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, noise, y)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if error := library.noisy_tanh(*pointers, ctypes.c_long(x.numel()), stream):
            raise RuntimeError(f"CUDA error {error}")
        return self.dropout(y)
