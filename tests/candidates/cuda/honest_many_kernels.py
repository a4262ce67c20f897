# problem: tiny_statistics
# expect: PASSED
"""Means by one kernel, deviations by a second, variances by a third: a pipeline on the current stream. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// A thread a row. x: (rows, columns), y: (rows).
__global__ void row_means_kernel(const float* x, float* y, long rows, long columns) {
  const long row = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (row >= rows) return;
  double sum = 0.0;
  for (long i = 0; i < columns; ++i) sum += x[row * columns + i];
  y[row] = float(sum / columns);
}

__global__ void square_deviations_kernel(const float* x, const float* mean, float* y, long count,
                                         long columns) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = (x[i] - mean[i / columns]) * (x[i] - mean[i / columns]);
}

extern "C" int row_means(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  row_means_kernel<<<(rows + 31) / 32, 32, 0, stream>>>(x, y, rows, columns);
  return cudaGetLastError();
}

extern "C" int square_deviations(const float* x, const float* mean, float* y, long count,
                                 long columns, cudaStream_t stream) {
  square_deviations_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, mean, y, count, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "statistics", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
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
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = x.contiguous()
        mean, variance = (torch.empty(x.shape[0], device=x.device) for _ in range(2))
        squares = torch.empty_like(x)
        launch("row_means", x, mean, *x.shape)
        launch("square_deviations", x, mean, squares, x.numel(), x.shape[1])
        launch("row_means", squares, variance, *x.shape)
        return {"mean": mean, "variance": variance}
