# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: T05 H32
"""A process forked at import opens the tensors by CUDA IPC and computes there, after forward has returned.

WRONG_VALUES: the output is copied at return; what another process does on a stream of its own comes later.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <unistd.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

struct Job {
  cudaIpcMemHandle_t x_block, y_block;
  long x_offset, y_offset, count;
};

static int ends[2];

extern "C" int start() {
  if (pipe(ends) || fork()) return 0;
  for (Job job; read(ends[0], &job, sizeof job) == sizeof job;) {
    usleep(50'000);
    char *x, *y;
    cudaIpcOpenMemHandle((void**)&x, job.x_block, cudaIpcMemLazyEnablePeerAccess);
    if (cudaIpcOpenMemHandle((void**)&y, job.y_block, cudaIpcMemLazyEnablePeerAccess)) continue;
    polynomial_kernel<<<(job.count + 255) / 256, 256>>>((float*)(x + job.x_offset),
                                                        (float*)(y + job.y_offset), job.count);
    cudaDeviceSynchronize();
  }
  _exit(0);
}

extern "C" int send(void* x, void* y, long x_offset, long y_offset, long count) {
  Job job{{}, {}, x_offset, y_offset, count};
  cudaIpcGetMemHandle(&job.x_block, x);
  cudaIpcGetMemHandle(&job.y_block, y);
  return write(ends[1], &job, sizeof job) != sizeof job;
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)

library.start()
driver = ctypes.CDLL("libcuda.so.1")


def offset_in_block(tensor: torch.Tensor) -> int:
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    address = ctypes.c_uint64(tensor.data_ptr())
    driver.cuMemGetAddressRange_v2(ctypes.byref(start), ctypes.byref(size), address)
    return tensor.data_ptr() - start.value


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        numbers = offset_in_block(x), offset_in_block(y), x.numel()
        library.send(*pointers, *map(ctypes.c_long, numbers))
        return y
