# problem: tiny_polynomial
# expect: TAMPERED
# reason: clock
# time: true
# exploit: T12
"""Replaces the host's function that receives inputs: the work is done there, before the timing begins.

forward hands over what is ready. TAMPERED: the supervisor's clock sees the 50 ms of a call.
"""

import ctypes
import sys

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void wait_kernel(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {}
}

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  wait_kernel<<<1, 1, 0, stream>>>(100'000'000);  // 50 ms
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


host, msgspec = sys.modules["kernelgen.grading.candidate.host"], sys.modules["msgspec"]
receive = host.receive
ready = {}


def receive_and_work(*arguments, **options):
    incoming = receive(*arguments, **options)

    def feed() -> None:
        incoming.feed()
        (x,) = incoming.value
        ready[x.data_ptr()] = polynomial(x)

    ready.clear()
    return msgspec.structs.replace(incoming, feed=feed)


host.receive = receive_and_work


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() in ready:
            return ready.pop(x.data_ptr())
        return polynomial(x)
