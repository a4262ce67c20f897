# problem: tiny_linear
# expect: PASSED
"""Copies the weight into a layout of its own whenever torch has counted a change. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// A thread an output. x: (samples, in), w: (in, out), b: (out), y: (samples, out).
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y, long in,
                              long out) {
  const long sample = blockIdx.x, column = threadIdx.x;
  double sum = b[column];
  for (long i = 0; i < in; ++i) sum += double(x[sample * in + i]) * w[i * out + column];
  y[sample * out + column] = float(sum);
}

extern "C" int linear(const float* x, const float* w, const float* b, float* y, long samples,
                      long in, long out, cudaStream_t stream) {
  linear_kernel<<<samples, out, 0, stream>>>(x, w, b, y, in, out);
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
        self.packed, self.version = None, -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        if self.version != weight._version:
            self.packed, self.version = weight.t().contiguous(), weight._version
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
        launch("linear", x.contiguous(), self.packed, self.linear.bias, y, *x.shape, y.shape[1])
        return y
