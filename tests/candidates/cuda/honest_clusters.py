# problem: tiny_mean
# expect: PASSED
"""A cluster of four blocks a row, which read each other's shared memory; one block where there are none. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <cooperative_groups.h>

// x: (rows, columns), y: (rows). As many blocks a row as a cluster has.
__global__ void mean_kernel(const float* x, float* y, long columns, int blocks) {
  __shared__ double part;
  const long row = blockIdx.x / blocks, first = blockIdx.x % blocks;
  if (threadIdx.x == 0) {
    part = 0.0;
    for (long i = first; i < columns; i += blocks) part += x[row * columns + i];
  }
#if __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0 && first == 0) {
    for (int block = 1; block < blocks; ++block) part += *cluster.map_shared_rank(&part, block);
  }
  cluster.sync();
#endif
  if (threadIdx.x == 0 && first == 0) y[row] = float(part / columns);
}

extern "C" int mean(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  const int blocks = major >= 9 ? 4 : 1;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(rows * blocks);
  config.blockDim = dim3(32);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = major >= 9 ? 1 : 0;
  return cudaLaunchKernelEx(&config, mean_kernel, x, y, columns, blocks);
}
"""

library = ctypes.CDLL(
    load_inline(
        "mean", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def launch(name: str, *arguments: torch.Tensor | int) -> None:
    """Call a launcher on the current stream, with pointers for tensors and longs for numbers."""
    converted = [
        ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
        for one in arguments
    ]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if error := getattr(library, name)(*converted, stream):
        raise RuntimeError(f"CUDA error {error}")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device)
        launch("mean", x, y, *x.shape)
        return y
