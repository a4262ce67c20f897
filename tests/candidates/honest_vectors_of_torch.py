# problem: tiny_softmax
# expect: PASSED
# time: true
# slow: torch headers through g++
"""Uses the vectors that torch brings for kernels of one's own, whose exponential is a function in torch's library. PASSED."""

from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/vec.h>

torch::Tensor softmax(torch::Tensor given) {
  auto x = given.contiguous();
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  const int64_t columns = x.size(1);
  using Vector = at::vec::Vectorized<float>;
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* a = from + row * columns;
      float* b = to + row * columns;
      double sum = 0;
      for (int64_t i = 0; i < columns; i += Vector::size()) {
        int64_t count = std::min<int64_t>(Vector::size(), columns - i);
        Vector::loadu(a + i, count).exp().store(b + i, count);
      }
      for (int64_t i = 0; i < columns; ++i) sum += b[i];
      for (int64_t i = 0; i < columns; ++i) b[i] = float(b[i] / sum);
    }
  });
  return y;
}
"""
avx2 = "avx2" in Path("/proc/cpuinfo").read_text()
flags = ["-mavx2", "-mfma", "-DCPU_CAPABILITY=AVX2", "-DCPU_CAPABILITY_AVX2"] if avx2 else []
extension = load_inline(
    name="vectors", cpp_sources=SOURCE, functions=["softmax"], extra_cflags=["-O2", *flags]
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.softmax(x)
