// Runs CUDA kernels on one CPU thread, to test their arithmetic and indices without a GPU.
//
// Every thread of a block is a fiber, and fibers run in turn: each runs up to its next barrier or
// shuffle. That is enough for kernels whose threads all pass the same barriers and shuffles, and it
// shows nothing about races or speed. Warps that leave early are fine.

#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0 };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(64 * 1024);
  dim3 index;
  uint64_t shuffled[2];
  unsigned shuffles = 0;
  bool done = false;
};

static std::vector<Fiber>* fibers;
static size_t current;
static ucontext_t scheduler;
static std::function<void()> body;

inline void yield() { swapcontext(&(*fibers)[current].context, &scheduler); }

inline void run_fiber() {
  body();
  (*fibers)[current].done = true;
}

inline void run_block() {
  for (size_t t = 0; t < fibers->size(); ++t) {
    Fiber& fiber = (*fibers)[t];
    fiber.done = false;
    fiber.shuffles = 0;
    fiber.index = dim3(t % blockDim.x, t / blockDim.x);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, run_fiber, 0);
  }
  for (size_t alive = fibers->size(); alive > 0;) {
    alive = 0;
    for (current = 0; current < fibers->size(); ++current) {
      Fiber& fiber = (*fibers)[current];
      if (fiber.done) continue;
      threadIdx = fiber.index;
      swapcontext(&scheduler, &fiber.context);
      if (!fiber.done) ++alive;
    }
  }
}

template <typename Kernel, typename... Arguments>
void launch(Kernel kernel, dim3 grid, dim3 block, const Arguments&... arguments) {
  std::vector<Fiber> threads(block.x * block.y);
  fibers = &threads;
  gridDim = grid;
  blockDim = block;
  body = [&] { kernel(arguments...); };
  for (unsigned b = 0; b < grid.x; ++b) {
    blockIdx = dim3(b, 0, 0);
    run_block();
  }
}

}  // namespace emulation

inline void __syncthreads() { emulation::yield(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  emulation::Fiber& own = (*emulation::fibers)[emulation::current];
  const unsigned slot = own.shuffles++ % 2;
  std::memcpy(&own.shuffled[slot], &value, sizeof value);
  emulation::yield();
  std::memcpy(&value, &(*emulation::fibers)[emulation::current ^ distance].shuffled[slot], sizeof value);
  return value;
}

inline float4 __ldcs(const float4* from) { return *from; }
inline float __ldcs(const float* from) { return *from; }
inline float __ldg(const float* from) { return *from; }
inline void __stcs(float4* to, float4 value) { *to = value; }
inline void __stcs(float* to, float value) { *to = value; }
using std::max;
using std::min;
