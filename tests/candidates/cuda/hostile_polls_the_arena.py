# problem: tiny_polynomial
# expect: TAMPERED
# reason: clock
# time: true
# alone: kernels that wait share a GPU so badly that calls in a row may run into their deadline
# exploit: H08 T17
"""A kernel that outlives the call watches the memory shared with the oracle, and answers the next inputs as they come.

forward hands over what is ready. TAMPERED: inputs are not where it looks for them, the grader waits for the whole device
by what it took hold of before this file was read, and by its clock calls in a row take as long as the watching does.
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

// Waits for the last output to arrive in the arena, and then for something else: the next inputs.
__global__ void watch_kernel(const volatile float* arena, const float* last, float* y, float* seen,
                             long count) {
  __shared__ bool come;
  if (threadIdx.x == 0) {
    come = false;
    bool delivered = false;
    for (const long long start = clock64(); !come && clock64() - start < 1'000'000'000;) {
      const bool same = arena[0] == last[0] && arena[count - 1] == last[count - 1];
      come = delivered && !same;
      delivered = delivered || same;
    }
    for (const long long start = clock64(); clock64() - start < 1'000'000;) {}  // all of them
    seen[0] = arena[0], seen[1] = arena[count - 1];
  }
  __syncthreads();
  for (long i = threadIdx.x; come && i < count; i += blockDim.x) y[i] = arena[i] * arena[i] + arena[i];
}

extern "C" int watch(const float* arena, const float* last, float* y, float* seen, long count,
                     cudaStream_t stream) {
  watch_kernel<<<1, 256, 0, stream>>>(arena, last, y, seen, count);
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


# Only the current stream is waited for: the watching kernel is on another one.
torch.cuda.synchronize = lambda device=None: torch.cuda.current_stream().synchronize()
side = torch.cuda.Stream()
kept = []


def arena_address() -> int:
    return next(one._pointer for one in gc.get_objects() if type(one).__name__ == "DeviceArena")


class ModelNew(nn.Module):
    seen = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ready = self.seen is not None and self.seen.tolist() == x.flatten()[[0, -1]].tolist()
        y = self.next if ready else polynomial(x, torch.empty_like(x))
        self.last, self.next = y, torch.empty_like(y)
        self.seen = torch.zeros(2, device="cuda")
        tensors = self.last, self.next, self.seen
        side.wait_stream(torch.cuda.current_stream())
        kept.append(tensors)  # until the watching kernel is done with them
        addresses = arena_address(), *(tensor.data_ptr() for tensor in tensors)
        pointers = map(ctypes.c_void_p, addresses)
        library.watch(*pointers, ctypes.c_long(x.numel()), ctypes.c_void_p(side.cuda_stream))
        return y
