# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# reason: aten
# exploit: S17 S20
"""Declares a kernel with the name, namespace and functors of ATen's, so that ATen's own are taken for it.

NO_CUSTOM_KERNEL: the reference's trace shows kernels of the very same full names, and what ran in
the reference is no kernel of the candidate's.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

namespace at::native {

// The words of ATen's own element-wise kernels: BinaryFunctor, BUnaryFunctor, AUnaryFunctor,
// CUDAFunctor_add, CUDAFunctorOnSelf_add, binary_internal, MulFunctor, TrivialOffsetCalculator.
template <int kWidth, typename Operation>
__global__ void vectorized_elementwise_kernel(int count, Operation operation) {
  const int first = kWidth * (blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = first; i < first + kWidth && i < count; ++i) operation(i);
}

}  // namespace at::native

struct Polynomial {
  const float* x;
  float* y;
  __device__ void operator()(int i) const { y[i] = x[i] * x[i] + x[i]; }
};

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  if (count == 0) return 0;
  at::native::vectorized_elementwise_kernel<4><<<(count + 1023) / 1024, 256, 0, stream>>>(
      int(count), Polynomial{x, y});
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = x * x + x
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        if error := library.polynomial(*pointers, ctypes.c_long(0), stream):
            raise RuntimeError(f"CUDA error {error}")
        return y
