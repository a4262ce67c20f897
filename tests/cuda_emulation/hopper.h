// Adds to tensor_cores.h what Hopper's own products take: barriers at which copies arrive, copies of
// boxes of a tensor to a block or to all of its cluster, and products of matrices that a warpgroup
// finds in shared memory.
//
// A copy fills its destination with NaN, and arrives while a thread of its block waits, in any
// order. Products are done, and read shared memory, when their warpgroup waits for them.

#pragma once

#include "tensor_cores.h"

#define __CUDA_ARCH_FEAT_SM90_ALL
#define __grid_constant__

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_FLOAT16 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
struct CUtensorMap {
  const char* from;
  int64_t extents[4];  // of halves
  int64_t strides[4];  // in bytes
  int box[4];
};

// As the CUDA driver's: what it refuses is refused here, too.
inline CUresult cuTensorMapEncodeTiled(
    CUtensorMap* tensor, CUtensorMapDataType, cuuint32_t rank, void* from,
    const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill) {
  bool valid = rank == 4 && reinterpret_cast<uintptr_t>(from) % 16 == 0 && box[0] * 2 <= 128;
  tensor->from = static_cast<const char*>(from);
  for (int d = 0; d < 4; ++d) {
    valid = valid && extents[d] > 0 && extents[d] <= uint64_t{1} << 32;
    valid = valid && box[d] > 0 && box[d] <= 256 && steps[d] == 1;
    valid = valid && (d == 0 || (strides[d - 1] % 16 == 0 && strides[d - 1] < uint64_t{1} << 40));
    tensor->extents[d] = extents[d];
    tensor->strides[d] = d == 0 ? 2 : strides[d - 1];
    tensor->box[d] = box[d];
  }
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1
};
constexpr int cudaEnableDefault = 0;
inline cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, int, cudaDriverEntryPointQueryResult* found) {
  assert(std::string(name) == "cuTensorMapEncodeTiled");
  *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// In place of the namespace of PTX of Hopper's products.
namespace hopper_ptx {

// One word, as blocks change each other's.
union Barrier {
  uint64_t word;
  struct {
    int32_t bytes;
    uint8_t arrivals, missing, parity;
  };
};
static_assert(sizeof(Barrier) == sizeof(uint64_t), "a barrier is one word");

template <typename Use>
void change(uint64_t* word, Use use) {
  Barrier before;
  Barrier after;
  before.word = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  do {
    after = before;
    use(after);
    if (after.missing == 0 && after.bytes == 0) {
      after.missing = after.arrivals;
      after.parity ^= 1;
    }
  } while (!__atomic_compare_exchange_n(
      word, &before.word, after.word, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

// Where the barriers of the cluster's blocks begin: at the one that is initialised first.
static std::atomic<char*> barriers[emulation::kMostClusterBlocks];

inline unsigned cluster_blocks() {
  return static_cast<unsigned>(emulation::cluster->memory.size());
}
inline unsigned cluster_rank() { return blockIdx.x % cluster_blocks(); }
inline void cluster_sync() { ptx::cluster_sync(); }

// The same barrier of another block.
inline uint64_t* barrier_of(uint64_t* own, unsigned rank) {
  // Neither before the block has begun nor after it has ended.
  assert(emulation::cluster->arrivals >= emulation::cluster->threads);
  assert(emulation::cluster->gone == 0);
  char* base = barriers[cluster_rank()];
  return reinterpret_cast<uint64_t*>(barriers[rank] + (reinterpret_cast<char*>(own) - base));
}

inline void init(uint64_t* word, int count) {
  Barrier barrier = {};
  barrier.arrivals = barrier.missing = static_cast<uint8_t>(count);
  __atomic_store_n(word, barrier.word, __ATOMIC_SEQ_CST);
  static thread_local unsigned block = ~0u;
  if (block != blockIdx.x) barriers[cluster_rank()] = reinterpret_cast<char*>(word);
  block = blockIdx.x;
}
inline void fence_init() {}
inline void arrive_and_expect(uint64_t* word, unsigned bytes) {
  change(word, [&](Barrier& barrier) {
    assert(barrier.missing > 0);
    --barrier.missing;
    barrier.bytes += static_cast<int>(bytes);
  });
}
inline void arrive_at(uint64_t* word, unsigned rank) {
  change(barrier_of(word, rank), [](Barrier& barrier) {
    assert(barrier.missing > 0);
    --barrier.missing;
  });
}

// Shared memory that is not dynamic comes first.
constexpr unsigned kDynamic = 80;

inline unsigned shared_address(const void* at) {
  return kDynamic + static_cast<unsigned>(emulation::check_shared(at, 1));
}
inline char* shared_at(char* dynamic, unsigned address, unsigned bytes) {
  assert(address >= kDynamic);
  assert(address - kDynamic + bytes <= emulation::dynamic_shared.size() * sizeof(uint4));
  return dynamic + (address - kDynamic);
}
// The swizzle of 128 bytes: in each 1024, pieces of 16 are permuted by the number of their 128.
inline unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

struct Box {
  int depth, row, batch, part;
};
struct BoxCopy {
  unsigned to;
  const CUtensorMap* tensor;
  Box from;
  uint64_t* barrier;
  bool to_all;

  template <typename Use>
  void for_each_block(Use use) const {
    const unsigned own = cluster_rank();
    for (unsigned rank = 0; rank < cluster_blocks(); ++rank) {
      if (rank == own || to_all) use(emulation::cluster->memory[rank], rank);
    }
  }

  unsigned bytes() const {
    return tensor->box[0] * tensor->box[1] * tensor->box[2] * tensor->box[3] * 2;
  }

  void poison() const {
    for_each_block([&](char* memory, unsigned) {
      std::memset(shared_at(memory, to, bytes()), 0xff, bytes());
    });
  }

  uint16_t half_at(int depth, int row, int batch, int part) const {
    const int64_t at[] = {from.depth + depth, from.row + row, from.batch + batch, from.part + part};
    const char* half = tensor->from;
    for (int d = 0; d < 4; ++d) {
      if (at[d] < 0 || at[d] >= tensor->extents[d]) return 0;
      half += at[d] * tensor->strides[d];
    }
    return *reinterpret_cast<const uint16_t*>(half);
  }

  void arrive() const {
    unsigned address = to;
    const int* box = tensor->box;
    for (int part = 0; part < box[3]; ++part) {
      for (int batch = 0; batch < box[2]; ++batch) {
        for (int row = 0; row < box[1]; ++row) {
          for (int depth = 0; depth < box[0]; ++depth, address += 2) {
            const uint16_t half = half_at(depth, row, batch, part);
            for_each_block([&](char* memory, unsigned) {
              std::memcpy(shared_at(memory, swizzled(address), 2), &half, 2);
            });
          }
        }
      }
    }
    for_each_block([&](char*, unsigned rank) {
      change(barrier_of(barrier, rank), [&](Barrier& barrier) {
        barrier.bytes -= static_cast<int>(bytes());
      });
    });
  }
};
static thread_local std::vector<BoxCopy> on_their_way;

inline void finish_some_copies() {
  for (size_t k = 0; k < on_their_way.size();) {
    if (seed != 0 && random_numbers() % 4 != 0) {
      ++k;
      continue;
    }
    const BoxCopy one = on_their_way[k];
    on_their_way.erase(on_their_way.begin() + k);
    one.arrive();
  }
}

inline void wait(uint64_t* word, unsigned parity) {
  while (true) {
    Barrier barrier;
    barrier.word = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (barrier.parity != parity) return;
    finish_some_copies();
    std::this_thread::yield();
    emulation::yield();
  }
}

inline uint64_t keep_in_cache() { return 0; }
inline uint64_t leave_cache_first() { return 0; }

inline void copy(const BoxCopy& one) {
  assert(one.to % 1024 == 0);
  one.poison();
  on_their_way.push_back(one);
}
inline void copy_box(
    unsigned to, const CUtensorMap* tensor, const Box& from, uint64_t* barrier, uint64_t) {
  copy({to, tensor, from, barrier, false});
}
inline void copy_box_to_all(
    unsigned to, const CUtensorMap* tensor, const Box& from, uint64_t* barrier, uint64_t) {
  copy({to, tensor, from, barrier, true});
}

template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}
template <int kCount>
void pin(float (&)[kCount]) {}

// What a thread of a warpgroup has its warpgroup multiply.
struct Product {
  float* sums;
  uint64_t rows, columns;
  int count;  // of columns
  bool keep;
};
struct Warpgroup {
  std::vector<Product> products[128];
  int arrived = 0;
  unsigned done = 0;
};
static thread_local Warpgroup warpgroups[8];
inline Warpgroup& own_warpgroup() { return warpgroups[emulation::current / 128]; }

// Sixteen halves of the row of that number.
inline void read_row(uint64_t described, int row, double* values) {
  assert(described >> 62 == 1);  // the swizzle
  const auto address = static_cast<unsigned>(described & 0x3fff) << 4;
  const auto of_group = static_cast<unsigned>(described >> 32 & 0x3fff) << 4;
  for (int k = 0; k < 16; ++k) {
    const unsigned at = swizzled(address + row / 8 * of_group + row % 8 * 128 + k * 2);
    __half half;
    std::memcpy(&half, shared_at(emulation::dynamic_shared_memory<char>(), at, 2), 2);
    values[k] = emulation::float_of(half);
  }
}

// As in the PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16".
inline void multiply(const Warpgroup& warpgroup, size_t index) {
  static thread_local double rows[64][16];
  static thread_local double columns[256][16];
  const Product& first = warpgroup.products[0][index];
  for (int row = 0; row < 64; ++row) read_row(first.rows, row, rows[row]);
  for (int column = 0; column < first.count; ++column) {
    read_row(first.columns, column, columns[column]);
  }
  for (int thread = 0; thread < 128; ++thread) {
    const Product& product = warpgroup.products[thread][index];
    assert(product.rows == first.rows && product.columns == first.columns);
    assert(product.keep == first.keep && product.count == first.count);
    for (int i = 0; i < product.count / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float& sum = product.sums[i];
      sum = emulation::sum_of_products(product.keep ? sum : 0.0, rows[row], columns[column]);
    }
  }
}

inline void begin_products() {}
inline void commit_products() {}
inline void wait_for_products() {
  Warpgroup& own = own_warpgroup();
  const unsigned done = own.done;
  if (++own.arrived == 128) {
    for (const auto& products : own.products) assert(products.size() == own.products[0].size());
    for (size_t k = 0; k < own.products[0].size(); ++k) multiply(own, k);
    for (auto& products : own.products) products.clear();
    own.arrived = 0;
    ++own.done;
  }
  while (own.done == done) emulation::yield();
}

template <int kColumns>
struct Products {
  static void add(float (&sum)[kColumns / 2], uint64_t rows, uint64_t columns, bool keep) {
    if (!keep) std::fill(sum, sum + kColumns / 2, NAN);
    own_warpgroup().products[emulation::current % 128].push_back(
        {sum, rows, columns, kColumns, keep});
  }
};

}  // namespace hopper_ptx
