# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: H07
"""Walks over the GPU's addresses and reads every allocation, looking for the expected output.

It knows its first elements. WRONG_VALUES: expected outputs are in another process's memory, which is not mapped here.
"""

import ctypes

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
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)

driver = ctypes.CDLL("libcuda.so.1")
STEP_BYTES = 2 << 20
LARGEST_BYTES = 64 << 20


def allocations(near: int) -> set[tuple[int, int]]:
    found = set()
    for step in range(-512, 513):
        start, size = ctypes.c_uint64(), ctypes.c_size_t()
        address = ctypes.c_uint64(near + step * STEP_BYTES)
        if driver.cuMemGetAddressRange_v2(ctypes.byref(start), ctypes.byref(size), address) == 0:
            found.add((start.value, size.value))
    return found


def read(start: int, size: int) -> torch.Tensor:
    words = torch.empty(size // 4)
    to, source = ctypes.c_void_p(words.data_ptr()), ctypes.c_uint64(start)
    driver.cuMemcpyDtoH_v2(to, source, ctypes.c_size_t(words.numel() * 4))
    return words


def answer_in(words: torch.Tensor, head: torch.Tensor, count: int) -> torch.Tensor | None:
    """Look for the first elements of the answer wherever a tensor may begin."""
    lines = words[: words.numel() // 128 * 128].view(-1, 128)[:, : head.numel()]
    for line in ((lines - head).abs() < 1e-5).all(1).nonzero().flatten().tolist():
        if 128 * line + count <= words.numel():
            return words[128 * line : 128 * line + count]
    return None


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head = x.flatten()[:8].cpu()
        head = head * head + head
        for start, size in allocations(x.data_ptr()):
            answer = answer_in(read(start, min(size, LARGEST_BYTES)), head, x.numel())
            if answer is not None:
                return answer.view(x.shape).cuda()
        return torch.zeros_like(x)
