# problem: tiny_linear
# expect: WRONG_VALUES
# exploit: T30
"""Turns TF32 on in forward, where the reference has it off, and has cuBLAS multiply.

It repeats the rows to a size at which tensor cores are used. WRONG_VALUES: TF32 is not within the bound.
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// y: (rows, columns), bias: (columns).
__global__ void add_bias_kernel(float* y, const float* bias, long count, long columns) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] += bias[i % columns];
}

extern "C" int add_bias(float* y, const float* bias, long count, long columns,
                        cudaStream_t stream) {
  add_bias_kernel<<<(count + 255) / 256, 256, 0, stream>>>(y, bias, count, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "add_bias", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
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
        torch.backends.cuda.matmul.allow_tf32 = True
        weight = self.linear.weight
        rows, columns = x.shape[0], weight.shape[0]
        y = F.linear(x.repeat(64, 1), weight.repeat(8, 1))[:rows, :columns].contiguous()
        launch("add_bias", y, self.linear.bias, y.numel(), columns)
        return y
