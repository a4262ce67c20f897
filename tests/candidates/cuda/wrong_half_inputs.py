# problem: tiny_linear
# expect: WRONG_VALUES
# exploit: S10
"""Rounds both factors to half precision and adds up in fp32. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <cuda_fp16.h>

// A block an output. x: (samples, in), w: (out, in), b: (out), y: (samples, out).
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y, long in,
                              long out) {
  __shared__ float parts[256];
  const long sample = blockIdx.x / out, column = blockIdx.x % out;
  float sum = 0.0f;
  for (long i = threadIdx.x; i < in; i += 256) {
    sum += __half2float(__float2half(x[sample * in + i])) * __half2float(__float2half(w[column * in + i]));
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  double total = b[column];
  for (int i = 0; i < 256; ++i) total += parts[i];
  y[blockIdx.x] = float(total);
}

extern "C" int linear(const float* x, const float* w, const float* b, float* y, long samples,
                      long in, long out, cudaStream_t stream) {
  linear_kernel<<<samples * out, 256, 0, stream>>>(x, w, b, y, in, out);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "linear", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def launch(name: str, *arguments: torch.Tensor | int) -> None:
    """Call a launcher on the current stream, with pointers for tensors and longs for numbers."""
    converted = [
        ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
        for one in arguments
    ]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if error := getattr(library, name)(*converted, stream):
        raise RuntimeError(f"CUDA error {error}")


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
        launch("linear", x.contiguous(), self.linear.weight, self.linear.bias, y, *x.shape, y.shape[1])
        return y
