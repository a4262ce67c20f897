# problem: tiny_mean
# expect: WRONG_SHAPE
# exploit: S13
"""Right values, of shape (rows, 1) instead of (rows), which would broadcast. WRONG_SHAPE."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// One thread a row. x: (rows, columns), y: (rows).
__global__ void mean_kernel(const float* x, float* y, long columns) {
  if (threadIdx.x) return;
  double sum = 0.0;
  for (long i = 0; i < columns; ++i) sum += x[blockIdx.x * columns + i];
  y[blockIdx.x] = float(sum / columns);
}

extern "C" int mean(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  mean_kernel<<<rows, 256, 0, stream>>>(x, y, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "mean", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
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
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        launch("mean", x, y, *x.shape)
        return y[:, None]
