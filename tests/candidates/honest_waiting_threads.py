# problem: tiny_linear
# expect: PASSED
# time: true
"""Keeps two threads in C++ that wait for the rows of the next call. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace {
std::mutex mutex;
std::condition_variable begun, ended;
std::function<void(long)> work;
long turn = 0, running = 0;

void wait_for_work(long part) {
  std::unique_lock<std::mutex> lock(mutex);
  for (long seen = 0;; ++seen) {
    begun.wait(lock, [&] { return turn > seen; });
    lock.unlock();
    work(part);
    lock.lock();
    if (--running == 0) ended.notify_one();
  }
}
}  // namespace

extern "C" void start() {
  for (long part = 0; part < 2; ++part) std::thread(wait_for_work, part).detach();
}

extern "C" void linear(const float* x, const float* w, const float* b, float* y, long rows,
                       long columns, long length) {
  std::unique_lock<std::mutex> lock(mutex);
  work = [=](long part) {
    for (long r = part; r < rows; r += 2)
      for (long c = 0; c < columns; ++c) {
        double sum = b[c];
        for (long k = 0; k < length; ++k) sum += double(x[r * length + k]) * w[c * length + k];
        y[r * columns + c] = float(sum);
      }
  };
  running = 2;
  ++turn;
  begun.notify_all();
  ended.wait(lock, [] { return running == 0; });
}
"""

library = ctypes.CDLL(
    load_inline(
        "linear",
        SOURCE,
        extra_cflags=["-O2", "-pthread"],
        no_implicit_headers=True,
        is_python_module=False,
    )
)
library.start()


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, weight = x.contiguous(), self.linear.weight
        y = torch.empty(len(x), len(weight))
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, weight, self.linear.bias, y)]
        library.linear(*pointers, *map(ctypes.c_long, (len(x), len(weight), x.shape[1])))
        return y
