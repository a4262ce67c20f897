// Adds to emulation.h what matrix products take: halves, copies that a thread waits for in groups,
// matrices loaded by a warp, and the tensor cores' multiplication, whose sums are cut off.
//
// A copy fills its destination with NaN and arrives only when its thread waits for it; blocks run
// their warps in turn or in random order. The blocks of a cluster run at once, each in a thread of
// the CPU. Memory for tests lies between pages nobody may touch.

#pragma once

#include "emulation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

namespace emulation {

APART float float_of(__half half) {
  static const std::vector<float> values = [] {
    std::vector<float> all(1 << 16);
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const int exponent = bits >> 10 & 31;
      const int mantissa = bits & 1023;
      float value = exponent == 0 ? std::ldexp(1.0f * mantissa, -24)
                                  : std::ldexp(1024.0f + mantissa, exponent - 25);
      if (exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
      all[bits] = bits >> 15 ? -value : value;
    }
    return all;
  }();
  return values[half.bits];
}

// Rounds to the nearest half, to the even one of two.
APART __half half_of(float value) {
  const unsigned sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  unsigned bits = 0x7e00;
  if (size >= 65520.0f) {
    bits = 0x7c00;
  } else if (size <= 65520.0f) {
    int exponent;
    std::frexp(size, &exponent);
    const int last = size < 0x1p-14f ? -24 : exponent - 11;  // exponent of the last bit
    bits = ((last + 24) << 10) + static_cast<unsigned>(std::nearbyint(std::ldexp(size, -last)));
  }
  return {static_cast<uint16_t>(sign | bits)};
}

// A number that is too large for a float is inf.
APART float cut_off(double value) {
  const float near = static_cast<float>(value);
  if (std::isinf(near)) return near;
  return std::fabs(static_cast<double>(near)) > std::fabs(value) ? std::nextafter(near, 0.0f)
                                                                  : near;
}

inline bool terms_are_aligned = false;

// Adds 16 products to a sum, which is cut off. Where terms are aligned, only whole steps of each
// count, which are 2^-25 of the largest term's power of two: two bits more than a float has.
APART float sum_of_products(double sum, const double* row, const double* column) {
  double all = sum;
  if (!terms_are_aligned) {
    for (int k = 0; k < 16; ++k) all += row[k] * column[k];
    return cut_off(all);
  }
  double terms[17] = {sum};
  for (int k = 0; k < 16; ++k) terms[k + 1] = row[k] * column[k];
  double largest = 0.0;
  for (const double term : terms) largest = std::max(largest, std::fabs(term));
  int exponent;
  std::frexp(largest, &exponent);
  const double step = std::ldexp(1.0, exponent - 26);
  const bool aligned = largest > 0.0 && std::isfinite(largest);
  all = 0.0;
  for (const double term : terms) all += aligned ? std::trunc(term / step) * step : term;
  return cut_off(all);
}

// The block's dynamic shared memory, as much as the launch asked for.
inline thread_local std::vector<uint4> dynamic_shared;
template <typename Element>
Element* dynamic_shared_memory() {
  return reinterpret_cast<Element*>(dynamic_shared.data());
}

// Returns where it is, from the first byte of the block's dynamic shared memory on.
APART size_t check_shared(const void* at, size_t bytes) {
  const char* byte = static_cast<const char*>(at);
  const char* begin = reinterpret_cast<const char*>(dynamic_shared.data());
  assert(byte >= begin && byte + bytes <= begin + dynamic_shared.size() * 16);
  assert((byte - begin) % bytes == 0);
  return byte - begin;
}

struct LateCopy {
  void* to;
  const void* from;
  int bytes;
  int room;  // zeros where there are fewer bytes
};

// A thread's copies: groups that are closed, oldest first, and the one that is not.
struct Groups {
  std::vector<std::vector<LateCopy>> closed;
  std::vector<LateCopy> open;
};
inline thread_local std::vector<Groups> groups;

// An instruction of a whole warp: the lane that comes last does the work of all.
struct Operands {
  const void* operation;
  void* to;
  const void* from;
};
// A lane's part of a multiplication.
struct Product {
  float* sums;
  uint32_t a[4];
  uint32_t b[2];
};
struct Warp {
  Operands operands[32];
  int arrived = 0;
  unsigned done = 0;
  std::vector<Product> products[32];  // that are still to be done
};
inline thread_local std::vector<Warp> warps;

template <typename Work>
void together(const Operands& own, Work work) {
  Warp& warp = warps[current / 32];
  warp.operands[current % 32] = own;
  const unsigned done = warp.done;
  if (++warp.arrived == 32) {
    for (const Operands& lane : warp.operands) assert(lane.operation == own.operation);
    work(warp);
    warp.arrived = 0;
    ++warp.done;
  }
  while (warp.done == done) yield();
}

inline std::string launches;

APART void note(const char* launch) {
  launches += launch;
  launches += '\n';
}

template <auto kKernel>
void note_launch() {
  note(__PRETTY_FUNCTION__);
}

// Seed 0 runs the warps of a block in turn, others in random order. What a block that is stuck leaves
// is of no use, nor is what later ones do.
APART void run_alone(unsigned block, size_t threads, size_t dynamic_bytes) {
  blockIdx = dim3(block, 0, 0);
  random_numbers.seed(seed * 7919 + block);
  std::memset(static_cast<void*>(dynamic_shared.data()), 0xff, dynamic_bytes);
  groups.assign(threads, {});
  warps.assign((threads + 31) / 32, {});
  if (seed == 0) {
    run_block();
  } else {
    run_block_at_random();
  }
  if (stuck) return;
  for (const Groups& thread : groups) {
    assert(thread.open.empty());
    for (const std::vector<LateCopy>& group : thread.closed) assert(group.empty());
  }
  for (const Warp& warp : warps) assert(warp.arrived == 0 && warp.products[0].empty());
}

// Blocks run one after the other in each of two threads of the CPU.
APART void run_blocks(
    dim3 grid, dim3 block, int dynamic_bytes, const std::function<void()>& kernel) {
  const unsigned count = block.x * block.y;
  assert(grid.x > 0 && count > 0 && count <= 1024);
  constexpr unsigned kProcessors = 2;
  static std::map<unsigned, std::vector<Fiber>> kept[kProcessors];  // by their number
  const auto run = [&](unsigned processor) {
    std::vector<Fiber>& threads = kept[processor][count];
    threads.resize(count);
    fibers = &threads;
    gridDim = grid;
    blockDim = block;
    body = kernel;
    dynamic_shared.resize(dynamic_bytes / sizeof(uint4));
    for (unsigned b = processor; b < grid.x; b += kProcessors) run_alone(b, count, dynamic_bytes);
  };
  if (grid.x == 1) return run(0);
  in_threads(kProcessors, run);
}

template <auto kKernel, typename... Arguments>
void launch_blocks(dim3 grid, dim3 block, int dynamic_bytes, const Arguments&... arguments) {
  note_launch<kKernel>();
  run_blocks(grid, block, dynamic_bytes, [&] { kKernel(arguments...); });
}

// A kernel that may run beside the one before it runs after it here.
template <auto kKernel, typename... Arguments>
cudaError_t launch_beside(
    dim3 grid, dim3 block, int dynamic_bytes, const Arguments&... arguments) {
  launch_blocks<kKernel>(grid, block, dynamic_bytes, arguments...);
  return cudaSuccess;
}

// State that the blocks of a cluster share.
struct Cluster {
  std::vector<char*> memory;  // the dynamic shared memory of each
  std::atomic<uint64_t> arrivals{0};  // of threads
  std::atomic<unsigned> gone{0};  // blocks
  uint64_t threads;
};
inline thread_local Cluster* cluster;
inline thread_local std::vector<uint64_t> cluster_arrivals;  // of each of the block's threads
constexpr unsigned kMostClusterBlocks = 16;
inline unsigned room_for_blocks = kMostClusterBlocks;  // of a cluster, on the device

APART int64_t whole_pages(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

}  // namespace emulation

struct cudaLaunchAttribute {
  int id;
  struct {
    dim3 clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
constexpr int cudaLaunchAttributeClusterDimension = 4;
constexpr int cudaLaunchAttributeProgrammaticStreamSerialization = 6;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace emulation {

// Clusters run one after the other, their blocks at once, each in a thread of the CPU.
APART void run_clusters(
    const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  const unsigned blocks = config.attrs->val.clusterDim.x;
  const size_t count = config.blockDim.x;
  assert(blocks > 0 && blocks <= room_for_blocks);
  assert(config.gridDim.x > 0 && config.gridDim.x % blocks == 0 && count <= 1024);
  static std::vector<Fiber> kept[kMostClusterBlocks];
  for (unsigned first = 0; first < config.gridDim.x; first += blocks) {
    Cluster shared;
    shared.memory.resize(blocks);
    shared.threads = blocks * count;
    const auto run = [&](unsigned rank) {
      kept[rank].resize(count);
      fibers = &kept[rank];
      gridDim = config.gridDim;
      blockDim = config.blockDim;
      body = kernel;
      dynamic_shared.resize(config.dynamicSmemBytes / sizeof(uint4));
      shared.memory[rank] = dynamic_shared_memory<char>();
      cluster = &shared;
      cluster_arrivals.assign(count, 0);
      run_alone(first + rank, count, config.dynamicSmemBytes);
      // Its shared memory is gone with a block.
      std::memset(static_cast<void*>(dynamic_shared.data()), 0xff, config.dynamicSmemBytes);
      for (++shared.gone; shared.gone < blocks;) std::this_thread::yield();
    };
    in_threads(blocks, run);
  }
}

template <auto kKernel, typename... Arguments>
cudaError_t launch_clusters(const cudaLaunchConfig_t& config, const Arguments&... arguments) {
  note_launch<kKernel>();
  run_clusters(config, [&] { kKernel(arguments...); });
  return cudaSuccess;
}

template <auto kKernel, typename... Arguments>
cudaError_t launch_kernel(
    int64_t blocks, int threads, int bytes, int cluster, bool, const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = bytes;
  cudaLaunchAttribute attribute = {};
  attribute.val.clusterDim = dim3(static_cast<unsigned>(cluster));
  config.attrs = &attribute;
  if (cluster > 0) return launch_clusters<kKernel>(config, arguments...);
  return launch_beside<kKernel>(config.gridDim, config.blockDim, bytes, arguments...);
}

}  // namespace emulation

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(
    int* clusters, Kernel*, const cudaLaunchConfig_t* config) {
  *clusters = config->attrs->val.clusterDim.x <= emulation::room_for_blocks ? 1 : 0;
  return cudaSuccess;
}

extern "C" {
APART void set_room_for_blocks(unsigned blocks) { emulation::room_for_blocks = blocks; }
APART void set_aligned_terms(int are) { emulation::terms_are_aligned = are != 0; }

// Returns what was launched since the last call.
APART const char* launched() {
  static std::string last;
  last = std::move(emulation::launches);
  emulation::launches.clear();
  return last.c_str();
}

// Memory, all of its bits set, up to the very end of which, or less than 16 bytes before it, there
// is no other. It is aligned to 16 bytes.
APART void* fenced(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t whole = emulation::whole_pages(bytes);
  void* mapped = mmap(
      nullptr, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert(mapped != MAP_FAILED);
  char* memory = static_cast<char*>(mapped) + page;
  std::memset(memory, 0xff, whole);
  mprotect(memory - page, page, PROT_NONE);
  mprotect(memory + whole, page, PROT_NONE);
  return memory + (whole - bytes) / 16 * 16;
}

APART void release(void* memory, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t whole = emulation::whole_pages(bytes);
  munmap(static_cast<char*>(memory) - (whole - bytes) / 16 * 16 - page, whole + 2 * page);
}
}

inline __half2 __floats2half2_rn(float x, float y) {
  return {emulation::half_of(x), emulation::half_of(y)};
}
inline float2 __half22float2(__half2 pair) {
  return {emulation::float_of(pair.x), emulation::float_of(pair.y)};
}

// Four bytes of eight, those of y after those of x, as the last digits of `which` say.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) found |= (bytes >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
  return found;
}

template <typename Combine>
unsigned warp_reduced(unsigned value, Combine combine) {
  const unsigned slot = emulation::exchange(&value, sizeof value);
  const size_t first = emulation::current / 32 * 32;
  unsigned all = 0;
  for (size_t lane = first; lane < first + 32; ++lane) {
    unsigned its;
    std::memcpy(&its, &(*emulation::fibers)[lane].posted[slot], sizeof its);
    all = combine(all, its);
  }
  return all;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return warp_reduced(value, [](unsigned a, unsigned b) { return std::max(a, b); });
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  return warp_reduced(value, [](unsigned a, unsigned b) { return a + b; });
}

// In place of the templates' namespaces of PTX.
namespace ptx {

inline void load_kept(float4& vector, const float4* from, bool wanted) {
  if (wanted) vector = *emulation::global(from);
}
inline void load_released(float4& vector, const float4* from, bool wanted) {
  if (wanted) vector = *emulation::global(from);
}
inline void load_passing(float& value, const float* from, bool wanted) {
  if (wanted) value = *emulation::global(from);
}

APART void copy_late(void* to, const void* from, int bytes, int room) {
  emulation::check_shared(to, room);
  assert(reinterpret_cast<uintptr_t>(from) % room == 0);
  std::memset(to, 0xff, room);
  emulation::groups[emulation::current].open.push_back({to, from, bytes, room});
}

inline void copy(void* to, const void* from, int bytes) {
  assert(bytes == 0 || bytes == 16);
  copy_late(to, from, bytes, 16);
}

APART void end_group() {
  emulation::Groups& own = emulation::groups[emulation::current];
  own.closed.push_back(std::move(own.open));
  own.open.clear();
}

// Has the copies of the oldest group arrive.
APART void finish_group() {
  auto& closed = emulation::groups[emulation::current].closed;
  for (const emulation::LateCopy& copy : closed.front()) {
    std::memset(copy.to, 0, copy.room);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  closed.erase(closed.begin());
}

template <int kLate>
void wait_for_groups() {
  while (emulation::groups[emulation::current].closed.size() > kLate) finish_group();
}

inline void copy_quad(void* to, const void* from, bool wanted) {
  copy_late(to, from, wanted ? 16 : 0, 16);
}
inline void wait_for_copies() {
  end_group();
  wait_for_groups<0>();
}

APART void cluster_sync() {
  emulation::Cluster& cluster = *emulation::cluster;
  const uint64_t so_far = ++emulation::cluster_arrivals[emulation::current];
  ++cluster.arrivals;
  while (cluster.arrivals < so_far * cluster.threads) {
    std::this_thread::yield();
    emulation::yield();
  }
}

// A warp's fragments, put together.
struct Matrices {
  double rows[16][16];
  double columns[8][16];
};

// As in the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
APART void put(Matrices& all, int lane, const emulation::Product& product) {
  uint16_t of_a[8];
  uint16_t of_b[4];
  std::memcpy(of_a, product.a, sizeof of_a);
  std::memcpy(of_b, product.b, sizeof of_b);
  const int group = lane / 4;
  const int first = lane % 4 * 2;
  for (int i = 0; i < 8; ++i) {
    all.rows[group + i / 2 % 2 * 8][first + i % 2 + i / 4 * 8] = emulation::float_of({of_a[i]});
  }
  for (int i = 0; i < 4; ++i) {
    all.columns[group][first + i % 2 + i / 2 * 8] = emulation::float_of({of_b[i]});
  }
}

APART void multiply(const emulation::Product* const (&lanes)[32]) {
  Matrices all;
  for (int lane = 0; lane < 32; ++lane) put(all, lane, *lanes[lane]);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const double* row = all.rows[lane / 4 + i / 2 * 8];
      const double* column = all.columns[lane % 4 * 2 + i % 2];
      lanes[lane]->sums[i] = emulation::sum_of_products(lanes[lane]->sums[i], row, column);
    }
  }
}

APART void multiply_all(emulation::Warp& warp) {
  const size_t count = warp.products[0].size();
  for (const auto& products : warp.products) assert(products.size() == count);
  for (size_t k = 0; k < count; ++k) {
    const emulation::Product* lanes[32];
    for (int lane = 0; lane < 32; ++lane) lanes[lane] = &warp.products[lane][k];
    multiply(lanes);
  }
  for (auto& products : warp.products) products.clear();
}

// Is done when the warp waits for it, or loads matrices.
APART void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t* b) {
  emulation::warps[emulation::current / 32].products[emulation::current % 32].push_back(
      {sums, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
}
APART void wait_for_products() {
  static const char operation = 0;
  emulation::together({&operation}, multiply_all);
}

// The rows of a matrix have to be in different banks.
APART void load_matrices(uint32_t (&matrices)[4], const void* row) {
  emulation::check_shared(row, 16);
  static const char operation = 0;
  emulation::together({&operation, matrices, row}, [](emulation::Warp& warp) {
    multiply_all(warp);
    const emulation::Operands* lanes = warp.operands;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const emulation::Operands* rows = lanes + matrix * 8;
      unsigned banks = 0;  // by groups of four
      for (int r = 0; r < 8; ++r) {
        banks |= 1u << reinterpret_cast<uintptr_t>(rows[r].from) / 16 % 8;
      }
      assert(banks == 0xff);
      for (int lane = 0; lane < 32; ++lane) {
        const char* from = static_cast<const char*>(rows[lane / 4].from) + lane % 4 * 4;
        std::memcpy(static_cast<uint32_t*>(lanes[lane].to) + matrix, from, 4);
      }
    }
  });
}

}  // namespace ptx

// As cuda_pipeline_primitives.h has them; shared memory need not be dynamic.
APART void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros) {
  assert(reinterpret_cast<uintptr_t>(from) % bytes == 0);
  std::memset(to, 0xff, bytes);
  const int count = static_cast<int>(bytes);
  emulation::groups[emulation::current].open.push_back(
      {to, from, count - static_cast<int>(zeros), count});
}
inline void __pipeline_commit() { ptx::end_group(); }
inline void __pipeline_wait_prior(size_t late) {
  while (emulation::groups[emulation::current].closed.size() > late) ptx::finish_group();
}

inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() {}
APART void* __cluster_map_shared_rank(void* at, unsigned rank) {
  const size_t offset = emulation::check_shared(at, sizeof(unsigned));
  // Neither before the block has begun nor after it has ended.
  assert(emulation::cluster->arrivals >= emulation::cluster->threads);
  assert(emulation::cluster->gone == 0);
  return emulation::cluster->memory[rank] + offset;
}
