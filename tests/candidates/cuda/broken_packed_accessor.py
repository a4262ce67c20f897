# problem: tiny_groupnorm
# expect: BUILD_ERROR
# reason: packed_accessor
# blames: x.contiguous().packed_accessor
# without-gpu: BUILD_ERROR
# slow: torch headers through nvcc
"""The deprecated packed_accessor, called on a temporary: torch deletes that overload, so nvcc refuses it.

BUILD_ERROR, with the line in this file.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor group_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int groups);"

CUDA_SOURCE = r"""

__global__ void group_norm_kernel(
    const torch::PackedTensorAccessor<float, 4, torch::RestrictPtrTraits, size_t> x,
    torch::PackedTensorAccessor<float, 4, torch::RestrictPtrTraits, size_t> y) {
  y[blockIdx.x][blockIdx.y][blockIdx.z][threadIdx.x] = x[blockIdx.x][blockIdx.y][blockIdx.z][threadIdx.x];
}

torch::Tensor group_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int groups) {
  auto y = torch::empty_like(x);
  const dim3 blocks(x.size(0), x.size(1), x.size(2));
  group_norm_kernel<<<blocks, x.size(3)>>>(
      x.contiguous().packed_accessor<float, 4, torch::RestrictPtrTraits, size_t>(),
      y.packed_accessor<float, 4, torch::RestrictPtrTraits, size_t>());
  return y;
}
"""

extension = load_inline(
    name="group_norm",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["group_norm"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.group_norm(
            x.contiguous(), self.norm.weight, self.norm.bias, self.norm.num_groups
        )
