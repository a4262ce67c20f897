# problem: tiny_polynomial
# expect: PASSED
"""Its own kernel has a name that torch's and cuBLAS's kernels have as well. PASSED: a name proves nothing."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

namespace at::native {

// As of ATen's own element-wise kernels.
template <int kWidth, typename Operation>
__global__ void vectorized_elementwise_kernel(int count, Operation operation) {
  const int first = kWidth * (blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = first; i < first + kWidth && i < count; ++i) operation(i);
}

}  // namespace at::native

namespace cutlass_80_simt_sgemm {

struct Polynomial {
  const float* x;
  float* y;
  __device__ void operator()(int i) const { y[i] = x[i] * x[i] + x[i]; }
};

}  // namespace cutlass_80_simt_sgemm

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  at::native::vectorized_elementwise_kernel<4><<<(count + 1023) / 1024, 256, 0, stream>>>(
      int(count), cutlass_80_simt_sgemm::Polynomial{x, y});
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


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
