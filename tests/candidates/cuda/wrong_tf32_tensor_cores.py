# problem: tiny_linear
# expect: WRONG_VALUES
# exploit: S10 T30
"""Multiplies on the tensor cores in TF32, with a kernel of its own that no setting of torch's reaches. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;
using Tf32 = wmma::precision::tf32;

// A warp for 16 outputs of up to 16 samples. x: (samples, in), w: (out, in), b: (out).
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y,
                              long samples, long in, long out) {
  __shared__ __align__(32) float tile[16 * 8], sums[16 * 16];
  wmma::fragment<wmma::matrix_a, 16, 16, 8, Tf32, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, Tf32, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  const long first = blockIdx.x * 16;
  for (long k = 0; k < in; k += 8) {
    for (int i = threadIdx.x; i < 128; i += 32) tile[i] = i / 8 < samples ? x[i / 8 * in + k + i % 8] : 0;
    __syncwarp();
    wmma::load_matrix_sync(left, tile, 8);
    wmma::load_matrix_sync(right, w + first * in + k, in);
    for (float& value : left.x) value = wmma::__float_to_tf32(value);
    for (float& value : right.x) value = wmma::__float_to_tf32(value);
    wmma::mma_sync(sum, left, right, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(sums, sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 16 * samples; i += 32) {
    y[i / 16 * out + first + i % 16] = sums[i] + b[first + i % 16];
  }
}

extern "C" int linear(const float* x, const float* w, const float* b, float* y, long samples,
                      long in, long out, cudaStream_t stream) {
  linear_kernel<<<out / 16, 32, 0, stream>>>(x, w, b, y, samples, in, out);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "linear", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
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
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
        launch("linear", x.contiguous(), self.linear.weight, self.linear.bias, y, *x.shape, y.shape[1])
        return y
