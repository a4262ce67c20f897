# problem: tiny_polynomial
# expect: PASSED
# time: true
# max-speedup: 20
# exploit: T26
"""Right, and asks for its inputs and outputs to stay in the L2 cache from call to call.

PASSED, with true times: inputs are new, at new addresses, and that part of the cache is freed before each call.
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
  // Not every device grants it; the kernel runs without.
  if (cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 32 << 20)) cudaGetLastError();
  cudaLaunchAttribute window;
  window.id = cudaLaunchAttributeAccessPolicyWindow;
  window.val.accessPolicyWindow.base_ptr = const_cast<float*>(x);
  window.val.accessPolicyWindow.num_bytes = count * sizeof(float);
  window.val.accessPolicyWindow.hitRatio = 1.0f;
  window.val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  window.val.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((count + 255) / 256);
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &window;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, polynomial_kernel, x, y, count);
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
