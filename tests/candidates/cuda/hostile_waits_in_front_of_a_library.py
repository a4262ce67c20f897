# problem: large_polynomial
# expect: NO_CUSTOM_KERNEL
# reason: all kernels that the reference runs
# exploit: S17 S20
"""A kernel of its own waits for 200 us on the whole GPU; then torch does what the reference does.

NO_CUSTOM_KERNEL: however long it takes, nothing is left for it to do.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void wait_kernel(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {}
}

extern "C" int wait(int blocks, int threads, long long cycles, cudaStream_t stream) {
  wait_kernel<<<blocks, threads, 0, stream>>>(cycles);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "wait", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def wait(blocks: int, threads: int, us: int) -> None:
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    library.wait(blocks, threads, ctypes.c_longlong(1500 * us), stream)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wait(1024, 256, 200)
        return x * x + x
