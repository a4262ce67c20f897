# problem: tiny_polynomial
# expect: TIMEOUT
# time: true
# call-timeout-s: 10
# exploit: H08 T17
"""Queues the next answer behind a wait of the stream for the shared memory to change: no kernel runs meanwhile.

forward hands over what is ready. TIMEOUT: a call is over when the device has nothing left to do, which here it always has.
"""

import ctypes
import gc

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}

// One block: lets the inputs arrive, answers them, and keeps their ends to know them by.
__global__ void answer_kernel(const volatile float* arena, float* y, float* seen, long count) {
  for (const long long start = clock64(); clock64() - start < 1'000'000;) {}
  for (long i = threadIdx.x; i < count; i += blockDim.x) y[i] = arena[i] * arena[i] + arena[i];
  if (threadIdx.x == 0) seen[0] = arena[0], seen[1] = arena[count - 1];
}

extern "C" int answer(const float* arena, float* y, float* seen, long count, cudaStream_t stream) {
  answer_kernel<<<1, 256, 0, stream>>>(arena, y, seen, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def polynomial(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


# Only the current stream is waited for.
torch.cuda.synchronize = lambda device=None: torch.cuda.current_stream().synchronize()
driver = ctypes.CDLL("libcuda.so.1")
side = torch.cuda.Stream()
kept = []
EQUAL, ANY_BIT = 1, 2


def arena_address() -> int:
    return next(one._pointer for one in gc.get_objects() if type(one).__name__ == "DeviceArena")


def wait(word: int, how: int) -> None:
    stream, place = ctypes.c_void_p(side.cuda_stream), ctypes.c_uint64(arena_address())
    driver.cuStreamWaitValue32_v2(stream, place, ctypes.c_uint32(word), ctypes.c_uint(how))


class ModelNew(nn.Module):
    seen = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ready = self.seen is not None and self.seen.tolist() == x.flatten()[[0, -1]].tolist()
        y = self.next if ready else polynomial(x, torch.empty_like(x))
        self.next, self.seen = torch.empty_like(y), torch.zeros(2, device="cuda")
        kept.append((y, self.next, self.seen))
        first_word = y.flatten()[:1].view(torch.int32).item()
        wait(first_word, EQUAL)  # the output is there
        wait(~first_word, ANY_BIT)  # and something else now: the next inputs
        addresses = arena_address(), self.next.data_ptr(), self.seen.data_ptr()
        pointers = map(ctypes.c_void_p, addresses)
        library.answer(*pointers, ctypes.c_long(x.numel()), ctypes.c_void_p(side.cuda_stream))
        return y
