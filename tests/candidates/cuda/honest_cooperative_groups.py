# problem: tiny_mean
# expect: PASSED
"""All blocks add up a part of every row, wait for each other, and one of them finishes. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <cooperative_groups.h>

constexpr int kBlocks = 32;

// x: (rows, columns), parts: (kBlocks, rows), y: (rows). A thread a row.
__global__ void mean_kernel(const float* x, double* parts, float* y, long rows, long columns) {
  for (long row = threadIdx.x; row < rows; row += blockDim.x) {
    double sum = 0.0;
    for (long i = blockIdx.x; i < columns; i += kBlocks) sum += x[row * columns + i];
    parts[blockIdx.x * rows + row] = sum;
  }
  cooperative_groups::this_grid().sync();
  for (long row = threadIdx.x; blockIdx.x == 0 && row < rows; row += blockDim.x) {
    double sum = 0.0;
    for (int block = 0; block < kBlocks; ++block) sum += parts[block * rows + row];
    y[row] = float(sum / columns);
  }
}

extern "C" int mean(const float* x, double* parts, float* y, long rows, long columns,
                    cudaStream_t stream) {
  void* arguments[] = {&x, &parts, &y, &rows, &columns};
  return cudaLaunchCooperativeKernel((void*)mean_kernel, kBlocks, 32, arguments, 0, stream);
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
        parts = torch.empty(32, x.shape[0], dtype=torch.float64, device=x.device)
        launch("mean", x, parts, y, *x.shape)
        return y
