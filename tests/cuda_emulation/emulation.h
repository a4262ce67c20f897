// Runs CUDA kernels on the CPU, to test their arithmetic, indices and waiting without a GPU.
//
// Every thread of a block is a fiber: it runs until it has to wait for another. Blocks run one after
// the other, their fibers in turn. Those of a cooperative launch run at once, each in a thread of
// the CPU, their warps in random order, some of them not at all in a round; copies are done late
// and in any order, and what they are to fill holds NaN until then. That shows wrong waiting and
// blocks that hang, but neither weak memory nor speed. Warps that leave early are fine.

#pragma once

#include <dlfcn.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

// What all sources have in common is compiled once, in an object that is linked to each of them.
#ifdef EMULATION_ITSELF
#define APART
#else
// Calls alone: GCC emits no such function, and puts none of another optimization into its callers.
#define APART extern inline __attribute__((gnu_inline, optimize("O0")))
#endif

#define __global__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __constant__
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline int device_multiprocessors = 1;
inline int capability_major = 8;
inline unsigned seed = 0;
inline int patience_s = 20;  // after which nothing honest is left
inline std::atomic<bool> stuck{false};
inline thread_local std::mt19937 random_numbers;
extern "C" {
inline int cooperative_launches = 0;
APART void set_device(int count, unsigned other_seed) {
  device_multiprocessors = count;
  seed = other_seed;
  stuck = false;
}
APART void set_capability(int major) { capability_major = major; }
APART void set_patience(int seconds) { patience_s = seconds; }
APART int was_stuck() { return stuck; }
}

using cudaStream_t = void*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorNotSupported = 801
};
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributeNonPortableClusterSizeAllowed
};
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? device_multiprocessors
           : attribute == cudaDevAttrComputeCapabilityMajor ? capability_major
                                                            : 227 << 10;
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) {
  return cudaSuccess;
}
struct cudaFuncAttributes {
  int ptxVersion;
  size_t sharedSizeBytes;
};
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
  *attributes = {90, capability_major == 9 ? size_t{3 << 10} : 0};  // of Hopper's kernels
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline const char* cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

// What a fiber leaves where it stops.
#ifdef __x86_64__
using Context = void*;  // the stack's end, with the registers on it: swapcontext calls the system
[[gnu::naked, gnu::noinline]] static void switch_to(Context* /* own */, const Context* /* other */) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq (%rsi), %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}
inline void prepare(Context* context, char* stack, size_t bytes, void (*entry)()) {
  void** end = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + bytes) / 16 * 16);
  end[-2] = reinterpret_cast<void*>(entry);  // where `ret` goes, to find the stack as after a call
  *context = end - 2 - 6;
}
#else
using Context = ucontext_t;
inline void switch_to(Context* own, const Context* other) { swapcontext(own, other); }
inline void prepare(Context* context, char* stack, size_t bytes, void (*entry)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  makecontext(context, entry, 0);
}
#endif

constexpr size_t kStackBytes = 64 * 1024;

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  dim3 index;
  uint64_t posted[2];  // a lane is never more than one exchange ahead of another
  unsigned exchanges = 0;
  unsigned barriers = 0;
  unsigned all_exchanges, all_barriers;  // of all lanes of a warp, or threads: of the first of them
  bool votes[2];  // nor more than one barrier
  bool done = false;
};

inline thread_local std::vector<Fiber>* fibers;
inline thread_local size_t current;
inline thread_local Context scheduler;
inline thread_local std::function<void()> body;

inline void yield() { switch_to(&(*fibers)[current].context, &scheduler); }

APART void run_fiber() {
  body();
  (*fibers)[current].done = true;
  yield();
}

APART void begin_block() {
  for (size_t t = 0; t < fibers->size(); ++t) {
    Fiber& fiber = (*fibers)[t];
    fiber.done = false;
    fiber.exchanges = fiber.all_exchanges = 0;
    fiber.barriers = fiber.all_barriers = 0;
    fiber.index = dim3(t % blockDim.x, t / blockDim.x);
    prepare(&fiber.context, fiber.stack.get(), kStackBytes, run_fiber);
  }
}

// Returns whether the fiber is not done.
inline bool resume(size_t fiber) {
  current = fiber;
  if ((*fibers)[fiber].done) return false;
  threadIdx = (*fibers)[fiber].index;
  switch_to(&scheduler, &(*fibers)[fiber].context);
  return !(*fibers)[fiber].done;
}

// Says so when a block takes too long, and when another one has.
class Patience {
 public:
  bool is_over() const {
    if (std::clock() > until_) stuck = true;
    return stuck;
  }

 private:
  // Of the processor's time: whoever waits does not sleep, and other programs have turns as well.
  std::clock_t until_ = std::clock() + patience_s * std::clock_t{CLOCKS_PER_SEC};
};

APART void run_block() {
  begin_block();
  const Patience patience;
  for (bool alive = true; alive && !patience.is_over();) {
    alive = false;
    for (size_t fiber = 0; fiber < fibers->size(); ++fiber) alive = resume(fiber) || alive;
  }
}

APART void finish_some_copies();

// From this seed on, four warps of a block are far behind the others.
constexpr unsigned kSeedOfSlowOnes = 100;

// In random order.
APART void run_block_at_random() {
  begin_block();
  const Patience patience;
  std::vector<size_t> warps((fibers->size() + 31) / 32);
  for (size_t w = 0; w < warps.size(); ++w) warps[w] = w;
  const bool any_slow = seed >= kSeedOfSlowOnes;
  const size_t slow = any_slow ? random_numbers() % ((warps.size() + 3) / 4) : 0;
  for (bool alive = true; alive && !patience.is_over();) {
    alive = false;
    finish_some_copies();
    std::shuffle(warps.begin(), warps.end(), random_numbers);
    for (const size_t warp : warps) {
      const bool waits = any_slow && warp / 4 == slow;
      const bool skipped = waits ? random_numbers() % 16 != 0 : random_numbers() % 4 == 0;
      const size_t flip = random_numbers() % 32;
      for (size_t lane = 0; lane < 32; ++lane) {
        const size_t fiber = warp * 32 + (lane ^ flip);
        if (fiber >= fibers->size() || (*fibers)[fiber].done) continue;
        alive = true;
        if (!skipped && random_numbers() % 8 != 0) resume(fiber);
      }
    }
  }
}

inline const void* launched = nullptr;  // the last kernel

// Its name, with its template arguments, as the linker knows it.
extern "C" {
APART const char* launched_kernel() {
  Dl_info info = {};
  return dladdr(launched, &info) != 0 && info.dli_sname != nullptr ? info.dli_sname : "";
}
}

APART void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  static std::vector<Fiber> threads;
  threads.resize(block.x * block.y);
  fibers = &threads;
  gridDim = grid;
  blockDim = block;
  body = kernel;
  for (unsigned b = 0; b < grid.x; ++b) {
    blockIdx = dim3(b, 0, 0);
    run_block();
  }
}

template <typename Kernel, typename... Arguments>
void launch(Kernel kernel, dim3 grid, dim3 block, const Arguments&... arguments) {
  launched = reinterpret_cast<const void*>(kernel);
  run_grid(grid, block, [&] { kernel(arguments...); });
}

// Calls a function for each number below a count, each in a thread of the CPU.
APART void in_threads(unsigned count, const std::function<void(unsigned)>& run) {
  std::vector<std::thread> processors;
  for (unsigned p = 0; p < count; ++p) processors.emplace_back([&run, p] { run(p); });
  for (std::thread& one : processors) one.join();
}

APART void run_together(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  stuck = false;
  in_threads(grid.x, [&](unsigned b) {
    random_numbers.seed(seed * 7919 + b);
    std::vector<Fiber> threads(block.x * block.y);
    fibers = &threads;
    gridDim = grid;
    blockDim = block;
    blockIdx = dim3(b, 0, 0);
    body = kernel;
    run_block_at_random();
  });
}

template <typename Kernel, typename... Arguments>
void launch_together(Kernel kernel, dim3 grid, dim3 block, const Arguments&... arguments) {
  launched = reinterpret_cast<const void*>(kernel);
  run_together(grid, block, [&] { kernel(arguments...); });
}

// Waits until all threads from `first` on, `count` of them, are at a number of steps, or done.
APART void await(
    size_t first, size_t count, unsigned Fiber::*steps, unsigned Fiber::*of_all, unsigned number) {
  unsigned& all = (*fibers)[first].*of_all;
  for (size_t t = first; t < first + count && t < fibers->size(); ++t) {
    while (all < number && !(*fibers)[t].done && (*fibers)[t].*steps < number) yield();
    if (all >= number) return;  // another one has looked at all
  }
  all = number;
}

// Has all lanes of the warp post a value; returns where a lane's is.
APART unsigned exchange(const void* value, size_t bytes) {
  Fiber& own = (*fibers)[current];
  const unsigned slot = own.exchanges++ % 2;
  std::memcpy(&own.posted[slot], value, bytes);
  await(current / 32 * 32, 32, &Fiber::exchanges, &Fiber::all_exchanges, own.exchanges);
  return slot;
}

template <typename... Parameters, size_t... k>
cudaError_t launch_with(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
    std::index_sequence<k...>) {
  launch_together(kernel, grid, block, *static_cast<Parameters*>(arguments[k])...);
  return cudaSuccess;
}

}  // namespace emulation

template <typename... Parameters>
cudaError_t cudaLaunchCooperativeKernel(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t) {
  ++cooperative_launches;
  const auto all = std::index_sequence_for<Parameters...>{};
  return emulation::launch_with(kernel, grid, block, arguments, all);
}

APART void __syncthreads() {
  using emulation::Fiber;
  const unsigned so_far = ++(*emulation::fibers)[emulation::current].barriers;
  emulation::await(
      0, emulation::fibers->size(), &Fiber::barriers, &Fiber::all_barriers, so_far);
}

APART int __syncthreads_or(int value) {
  emulation::Fiber& own = (*emulation::fibers)[emulation::current];
  const unsigned so_far = own.barriers + 1;
  own.votes[so_far % 2] = value != 0;
  __syncthreads();
  bool any = false;
  for (const emulation::Fiber& thread : *emulation::fibers) {
    any = any || (thread.barriers >= so_far && thread.votes[so_far % 2]);
  }
  return any;
}

APART int __syncthreads_count(int value) {
  emulation::Fiber& own = (*emulation::fibers)[emulation::current];
  const unsigned so_far = own.barriers + 1;
  own.votes[so_far % 2] = value != 0;
  __syncthreads();
  int count = 0;
  for (const emulation::Fiber& thread : *emulation::fibers) {
    count += thread.barriers >= so_far && thread.votes[so_far % 2];
  }
  return count;
}

inline void __syncwarp() {
  const char nothing = 0;
  emulation::exchange(&nothing, sizeof nothing);
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  const unsigned slot = emulation::exchange(&value, sizeof value);
  std::memcpy(&value, &(*emulation::fibers)[emulation::current ^ distance].posted[slot], sizeof value);
  return value;
}

template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  const unsigned slot = emulation::exchange(&value, sizeof value);
  const size_t from = emulation::current / width * width + lane % width;
  std::memcpy(&value, &(*emulation::fibers)[from].posted[slot], sizeof value);
  return value;
}

template <typename T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const unsigned slot = emulation::exchange(&value, sizeof value);
  if (emulation::current % 32 < static_cast<size_t>(distance)) return value;
  std::memcpy(&value, &(*emulation::fibers)[emulation::current - distance].posted[slot], sizeof value);
  return value;
}

APART unsigned __ballot_sync(unsigned, bool value) {
  const unsigned slot = emulation::exchange(&value, sizeof value);
  const size_t first = emulation::current / 32 * 32;
  unsigned votes = 0;
  for (size_t lane = 0; lane < 32; ++lane) {
    bool its;
    std::memcpy(&its, &(*emulation::fibers)[first + lane].posted[slot], sizeof its);
    votes |= unsigned{its} << lane;
  }
  return votes;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

inline bool __all_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) == ~0u; }

inline bool __any_sync(unsigned mask, bool value) { return !__all_sync(mask, !value); }

namespace emulation {

// The block's dynamic shared memory. On a GPU only loads that name no state space reach both it and
// global memory, so those that name one say so to `global`.
inline thread_local std::pair<const char*, const char*> shared_bytes;
template <typename Element, size_t kCount>
void use_shared(Element (&elements)[kCount]) {
  const char* begin = reinterpret_cast<const char*>(elements);
  shared_bytes = {begin, begin + sizeof elements};
}
template <typename Element>
const Element* global(const Element* at) {
  const char* byte = reinterpret_cast<const char*>(at);
  assert(byte < shared_bytes.first || byte >= shared_bytes.second);
  if constexpr (!std::is_void_v<Element>) {
    assert(reinterpret_cast<uintptr_t>(at) % alignof(Element) == 0);
  }
  return at;
}

}  // namespace emulation

inline unsigned __umulhi(unsigned a, unsigned b) { return uint64_t{a} * b >> 32; }

inline unsigned atomicAdd(unsigned* to, unsigned value) {
  return __atomic_fetch_add(to, value, __ATOMIC_SEQ_CST);
}

inline unsigned atomicOr(unsigned* to, unsigned value) {
  return __atomic_fetch_or(to, value, __ATOMIC_SEQ_CST);
}

inline unsigned atomicMax(unsigned* to, unsigned value) {
  unsigned before = __atomic_load_n(to, __ATOMIC_SEQ_CST);
  while (before < value && !__atomic_compare_exchange_n(
                               to, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return before;
}

// In place of the templates' namespace of PTX.
namespace ptx {

struct Barrier {
  int bytes;
  uint8_t arrivals, missing, parity;
};
static_assert(sizeof(Barrier) == sizeof(uint64_t), "a barrier is one word");

template <typename Use>
void change(uint64_t* word, Use use) {
  Barrier barrier;
  std::memcpy(&barrier, word, sizeof barrier);
  use(barrier);
  if (barrier.missing == 0 && barrier.bytes == 0) {
    barrier.missing = barrier.arrivals;
    barrier.parity ^= 1;
  }
  std::memcpy(word, &barrier, sizeof barrier);
}

inline void init(uint64_t* word, int arrivals) {
  const auto count = static_cast<uint8_t>(arrivals);
  const Barrier barrier = {0, count, count, 0};
  std::memcpy(word, &barrier, sizeof barrier);
}
inline void fence_init() {}
inline void fence_copies() {}
inline void arrive(uint64_t* word) {
  change(word, [](Barrier& barrier) { --barrier.missing; });
}
inline void arrive_and_expect(uint64_t* word, unsigned bytes) {
  change(word, [&](Barrier& barrier) {
    --barrier.missing;
    barrier.bytes += static_cast<int>(bytes);
  });
}
inline bool is_over(uint64_t* word, unsigned parity) {
  Barrier barrier;
  std::memcpy(&barrier, word, sizeof barrier);
  return barrier.parity != parity;
}
inline void wait(uint64_t* word, unsigned parity) {
  while (!is_over(word, parity)) emulation::yield();
}
struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  uint64_t* word;
};
inline thread_local std::vector<Copy> on_their_way;
inline uint64_t kept() { return 0; }
inline uint64_t released() { return 0; }
inline void copy(void* to, const void* from, unsigned bytes, uint64_t* word, uint64_t /* policy */) {
  assert(bytes % 16 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0);
  assert(reinterpret_cast<uintptr_t>(from) % 16 == 0);
  std::memset(to, 0xff, bytes);
  on_their_way.push_back({to, emulation::global(from), bytes, word});
}
template <int kWords>
void publish(uint64_t* to, const uint64_t (&words)[kWords]) {
  emulation::global(to);
  for (int w = 0; w < kWords; ++w) {
    if (w > 0) emulation::yield();  // one may be there before the other
    __atomic_store_n(to + w, words[w], __ATOMIC_SEQ_CST);
  }
}
template <int kWords>
void look_up(uint64_t (&words)[kWords], const uint64_t* from, bool wanted) {
  for (int w = 0; wanted && w < kWords; ++w) {
    words[w] = __atomic_load_n(emulation::global(from + w), __ATOMIC_SEQ_CST);
  }
}

inline unsigned short to_bfloat16(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  return value != value ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
}
inline unsigned short to_float16(float value) {
  const auto half = static_cast<_Float16>(value);
  unsigned short bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}
inline float from_float16(unsigned short bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return half;
}

inline float maximum(float a, float b) { return a > b || a != a ? a : b; }
inline float minimum(float a, float b) { return a < b || a != a ? a : b; }
inline float larger(float a, float b) { return maximum(a, b); }
inline float smaller(float a, float b) { return minimum(a, b); }
inline float reciprocal(float x) { return std::nextafter(1.0f / x, 2.0f); }
inline float4 vector_at(const float* from) {
  return *emulation::global(reinterpret_cast<const float4*>(from));
}
inline float4 load_kept(const void* from) { return vector_at(static_cast<const float*>(from)); }
inline float4 load_released(const void* from) { return load_kept(from); }
inline void store(void* to, const float4& v) {
  assert(reinterpret_cast<uintptr_t>(to) % sizeof(float4) == 0);
  *static_cast<float4*>(to) = v;
}
inline void store(float* to, const float (&values)[4]) {
  assert(reinterpret_cast<uintptr_t>(to) % sizeof(float4) == 0);
  std::memcpy(to, values, sizeof values);
}

}  // namespace ptx

APART void emulation::finish_some_copies() {
  std::vector<ptx::Copy>& copies = ptx::on_their_way;
  for (size_t k = 0; k < copies.size();) {
    if (random_numbers() % 4 != 0) {
      ++k;
      continue;
    }
    const ptx::Copy one = copies[k];
    copies[k] = copies.back();
    copies.pop_back();
    std::memcpy(one.to, one.from, one.bytes);
    ptx::change(one.word, [&](ptx::Barrier& barrier) {
      barrier.bytes -= static_cast<int>(one.bytes);
    });
  }
}

inline float4 __ldcs(const float4* from) { return *emulation::global(from); }
inline float __ldcs(const float* from) { return *emulation::global(from); }
inline float __ldg(const float* from) { return *emulation::global(from); }
inline float4 __ldg(const float4* from) { return *emulation::global(from); }
inline unsigned short __ldg(const unsigned short* from) { return *emulation::global(from); }
inline unsigned __ldg(const unsigned* from) { return *emulation::global(from); }
inline void __stcs(float4* to, float4 value) { *to = value; }
inline void __stcs(float* to, float value) { *to = value; }
template <typename To, typename From>
To bits_as(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline float __fdividef(float a, float b) { return std::nextafter(a / b, 2.0f); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
