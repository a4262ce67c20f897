# problem: tiny_two_outputs
# expect: PASSED
"""Both outputs are parts of one allocation. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// A thread a row. x: (rows, columns), out: the sums (rows), then the squares (rows, columns).
__global__ void run_kernel(const float* x, float* out, long rows, long columns) {
  const long row = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (row >= rows) return;
  double sum = 0.0;
  for (long i = row * columns; i < (row + 1) * columns; ++i) {
    sum += x[i];
    out[rows + i] = x[i] * x[i];
  }
  out[row] = float(sum);
}

extern "C" int run(const float* x, float* out, long rows, long columns, cudaStream_t stream) {
  run_kernel<<<(rows + 31) / 32, 32, 0, stream>>>(x, out, rows, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "sums_and_squares", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.contiguous()
    rows, columns = x.shape
    block = torch.empty(rows + x.numel(), device=x.device)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(block.data_ptr())
    if error := library.run(*pointers, ctypes.c_long(rows), ctypes.c_long(columns), stream):
        raise RuntimeError(f"CUDA error {error}")
    return block[:rows], block[rows:].view(rows, columns)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return run(x)
