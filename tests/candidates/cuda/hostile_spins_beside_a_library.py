# problem: large_polynomial
# expect: NO_CUSTOM_KERNEL
# reason: wait_kernel
# exploit: S17 S20
"""torch does the work, and a kernel of its own spins on another stream for most of that time.

NO_CUSTOM_KERNEL: a third of the durations, and none of the time, is its own.
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


side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        current = torch.cuda.current_stream()
        with torch.cuda.stream(side):
            y = torch.empty_like(x)
        start = torch.cuda.Event()
        torch.addcmul(x[:64], x[:64], x[:64], out=y[:64])
        start.record()
        torch.addcmul(x[64:], x[64:], x[64:], out=y[64:])
        side.wait_event(start)
        with torch.cuda.stream(side):
            wait(4, 256, 20)
        current.wait_stream(side)
        return y
