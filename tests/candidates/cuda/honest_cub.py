# problem: tiny_mean
# expect: PASSED
# time: true
# slow: CUB's headers through nvcc
"""Sums rows with CUB, compiled into its own module, and divides them with a kernel of its own. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cub/device/device_reduce.cuh>

__global__ void divide_kernel(float* y, int rows, float by) {
  if (threadIdx.x < rows) y[threadIdx.x] /= by;
}

// x: (rows, columns), y: (rows); `room` is for CUB.
extern "C" int row_means(const float* x, float* y, void* room, size_t room_bytes, int rows,
                         int columns, cudaStream_t stream) {
  for (int row = 0; row < rows; ++row)
    if (const cudaError_t error = cub::DeviceReduce::Sum(room, room_bytes, x + long(row) * columns,
                                                         y + row, columns, stream))
      return error;
  divide_kernel<<<1, 32, 0, stream>>>(y, rows, float(columns));
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "row_means", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty(len(x), device=x.device)
        room = torch.empty(1 << 20, dtype=torch.uint8, device=x.device)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y, room)]
        size = ctypes.c_size_t(room.numel())
        if error := library.row_means(*pointers, size, *map(ctypes.c_int, x.shape), stream):
            raise RuntimeError(f"CUDA error {error}")
        return y
