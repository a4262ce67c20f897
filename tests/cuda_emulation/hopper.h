// Adds to tensor_cores.h what Hopper's own products take: barriers at which copies arrive, copies of
// bytes, copies of boxes of a tensor to a block or to all of its cluster, and products of matrices
// that a warpgroup finds in shared memory, or of rows in its registers.
//
// A copy fills its destination with NaN, and arrives while a thread of its block waits, in any
// order. Products are done, and read shared memory and registers, when their warpgroup waits for
// them.

#pragma once

#include "tensor_cores.h"

#define __CUDA_ARCH_FEAT_SM90_ALL
#define __grid_constant__

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
struct CUtensorMap {
  const char* from;
  int64_t extents[4];  // of elements
  int64_t strides[4];  // in bytes
  int box[4];
  unsigned element;  // in bytes
};

// As the CUDA driver's: what it refuses is refused here, too.
APART CUresult cuTensorMapEncodeTiled(
    CUtensorMap* tensor, CUtensorMapDataType type, cuuint32_t rank, void* from,
    const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill) {
  tensor->element = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
  bool valid = rank <= 4 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  valid = valid && box[0] * tensor->element <= 128;
  tensor->from = static_cast<const char*>(from);
  for (int d = rank; d < 4; ++d) {
    tensor->extents[d] = tensor->box[d] = 1;
    tensor->strides[d] = 0;
  }
  for (int d = 0; d < static_cast<int>(rank); ++d) {
    valid = valid && extents[d] > 0 && extents[d] <= uint64_t{1} << 32;
    valid = valid && box[d] > 0 && box[d] <= 256 && steps[d] == 1;
    valid = valid && (d == 0 || (strides[d - 1] % 16 == 0 && strides[d - 1] < uint64_t{1} << 40));
    tensor->extents[d] = extents[d];
    tensor->strides[d] = d == 0 ? tensor->element : strides[d - 1];
    tensor->box[d] = box[d];
  }
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1
};
constexpr int cudaEnableDefault = 0;
APART cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, int, cudaDriverEntryPointQueryResult* found) {
  assert(std::string(name) == "cuTensorMapEncodeTiled");
  *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// In place of the namespace of PTX of Hopper's products.
namespace hopper_ptx {

// Other kernels of the file have these as well.
using namespace ::ptx;
using ::ptx::copy;

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
inline std::atomic<char*> barriers[emulation::kMostClusterBlocks];

inline unsigned cluster_blocks() {
  return emulation::cluster ? static_cast<unsigned>(emulation::cluster->memory.size()) : 1;
}
inline int cluster_rank() { return static_cast<int>(blockIdx.x % cluster_blocks()); }
inline void cluster_sync() { ptx::cluster_sync(); }

// The same barrier of another block.
APART uint64_t* barrier_of(uint64_t* own, unsigned rank) {
  if (!emulation::cluster) return own;
  // Neither before the block has begun nor after it has ended.
  assert(emulation::cluster->arrivals >= emulation::cluster->threads);
  assert(emulation::cluster->gone == 0);
  char* base = barriers[cluster_rank()];
  return reinterpret_cast<uint64_t*>(barriers[rank] + (reinterpret_cast<char*>(own) - base));
}

APART void init(uint64_t* word, int count) {
  Barrier barrier = {};
  barrier.arrivals = barrier.missing = static_cast<uint8_t>(count);
  __atomic_store_n(word, barrier.word, __ATOMIC_SEQ_CST);
  static thread_local unsigned block = ~0u;
  if (block != blockIdx.x) barriers[cluster_rank()] = reinterpret_cast<char*>(word);
  block = blockIdx.x;
}
inline void fence_init() {}
inline void fence_copies() {}
APART void arrive_and_expect(uint64_t* word, unsigned bytes) {
  change(word, [&](Barrier& barrier) {
    assert(barrier.missing > 0);
    --barrier.missing;
    barrier.bytes += static_cast<int>(bytes);
  });
}
APART void arrive(uint64_t* word) {
  change(word, [](Barrier& barrier) {
    assert(barrier.missing > 0);
    --barrier.missing;
  });
}
inline void arrive_at(uint64_t* word, unsigned rank) { arrive(barrier_of(word, rank)); }

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
struct Copy {
  unsigned to;
  const CUtensorMap* tensor;  // or null, where bytes are copied
  Box from;
  const char* first;  // of the bytes
  unsigned bytes;
  uint64_t* barrier;
  bool to_all;

  template <typename Use>
  void for_each_block(Use use) const {
    if (!emulation::cluster) return use(emulation::dynamic_shared_memory<char>(), 0);
    const auto own = static_cast<unsigned>(cluster_rank());
    for (unsigned rank = 0; rank < cluster_blocks(); ++rank) {
      if (rank == own || to_all) use(emulation::cluster->memory[rank], rank);
    }
  }

  void poison() const {
    for_each_block([&](char* memory, unsigned) {
      std::memset(shared_at(memory, to, bytes), 0xff, bytes);
    });
  }

  // Null outside of the tensor.
  const char* element_at(int depth, int row, int batch, int part) const {
    const int64_t at[] = {from.depth + depth, from.row + row, from.batch + batch, from.part + part};
    const char* element = tensor->from;
    for (int d = 0; d < 4; ++d) {
      if (at[d] < 0 || at[d] >= tensor->extents[d]) return nullptr;
      element += at[d] * tensor->strides[d];
    }
    return element;
  }

  void put(unsigned address, const char* element) const {
    const unsigned count = tensor->element;
    for_each_block([&](char* memory, unsigned) {
      char* place = shared_at(memory, swizzled(address), count);
      if (element) {
        std::memcpy(place, element, count);
      } else {
        std::memset(place, 0, count);
      }
    });
  }

  void put_box() const {
    unsigned address = to;
    const int* box = tensor->box;
    for (int part = 0; part < box[3]; ++part) {
      for (int batch = 0; batch < box[2]; ++batch) {
        for (int row = 0; row < box[1]; ++row) {
          for (int depth = 0; depth < box[0]; ++depth, address += tensor->element) {
            put(address, element_at(depth, row, batch, part));
          }
        }
      }
    }
  }

  void arrive() const {
    if (tensor) {
      put_box();
    } else {
      for_each_block([&](char* memory, unsigned) {
        std::memcpy(shared_at(memory, to, bytes), first, bytes);
      });
    }
    for_each_block([&](char*, unsigned rank) {
      change(barrier_of(barrier, rank), [&](Barrier& barrier) {
        barrier.bytes -= static_cast<int>(bytes);
      });
    });
  }
};
inline thread_local std::vector<Copy> on_their_way;

APART void finish_some_copies() {
  for (size_t k = 0; k < on_their_way.size();) {
    if (seed != 0 && random_numbers() % 4 != 0) {
      ++k;
      continue;
    }
    const Copy one = on_their_way[k];
    on_their_way.erase(on_their_way.begin() + k);
    one.arrive();
  }
}

APART void wait(uint64_t* word, unsigned parity) {
  while (true) {
    Barrier barrier;
    barrier.word = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (barrier.parity != parity) return;
    finish_some_copies();
    if (emulation::cluster) std::this_thread::yield();  // to the other blocks
    emulation::yield();
  }
}

// A value to the same place of another block, whose barrier counts it.
APART void send(float* to, int rank, float value, uint64_t* barrier) {
  const size_t offset = emulation::check_shared(to, sizeof value);
  std::memcpy(emulation::cluster->memory[rank] + offset, &value, sizeof value);
  change(barrier_of(barrier, rank), [](Barrier& its) { its.bytes -= sizeof(float); });
}

inline uint64_t keep_in_cache() { return 0; }
inline uint64_t leave_cache_first() { return 0; }
constexpr uint64_t kEvictFirst = 1;
constexpr uint64_t kEvictLast = 2;

APART void copy(const Copy& one) {
  one.poison();
  on_their_way.push_back(one);
}
APART void copy(
    unsigned to, const CUtensorMap* tensor, const Box& from, uint64_t* barrier, bool to_all) {
  assert(to % 1024 == 0);
  const int* box = tensor->box;
  const unsigned bytes = box[0] * box[1] * box[2] * box[3] * tensor->element;
  copy({to, tensor, from, nullptr, bytes, barrier, to_all});
}
inline void copy_box(
    unsigned to, const CUtensorMap* tensor, const Box& from, uint64_t* barrier, uint64_t = 0) {
  copy(to, tensor, from, barrier, false);
}
inline void copy_box_to_both(
    unsigned to, const CUtensorMap* tensor, const Box& from, uint64_t* barrier, uint64_t) {
  copy(to, tensor, from, barrier, true);
}
inline void copy_bytes(
    unsigned to, const void* from, unsigned bytes, uint64_t* barrier, uint64_t = 0) {
  assert(to % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0 && bytes % 16 == 0);
  copy({to, nullptr, {}, static_cast<const char*>(from), bytes, barrier, false});
}

inline void copy_bytes_to_all(
    unsigned to, const void* from, unsigned bytes, uint64_t* barrier, uint16_t blocks) {
  assert(blocks == (1 << cluster_blocks()) - 1);
  assert(to % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0 && bytes % 16 == 0);
  copy({to, nullptr, {}, static_cast<const char*>(from), bytes, barrier, true});
}

inline void store(unsigned to, const uint4& value) {
  assert(to % 16 == 0);
  std::memcpy(shared_at(emulation::dynamic_shared_memory<char>(), to, 16), &value, 16);
}
inline void fence_writes() {}
inline float larger(float a, float b) { return a != a || a > b ? a : b; }

// By its number, as no block uses one for others.
APART void sync_threads(int number, int threads) {
  struct Meeting {
    int arrived;
    unsigned met;
  };
  static thread_local Meeting meetings[16];
  Meeting& own = meetings[number];
  const unsigned met = own.met;
  if (++own.arrived == threads) {
    own.arrived = 0;
    ++own.met;
  }
  while (own.met == met) emulation::yield();
}

template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}
template <int kCount>
void pin(float (&)[kCount]) {}
template <int kCount>
void pin(uint32_t (&)[kCount]) {}

// As the instruction has it: bf16 in place of fp16, and operands whose rows are neighbours in memory
// in place of those along K.
struct Form {
  bool is_bf16, rows_turned, columns_turned;
};

// Products that a thread of a warpgroup has its warpgroup compute.
struct Product {
  float* sums;
  const uint32_t* registers;  // with rows, or null
  uint64_t rows, columns;
  int count;  // of columns
  bool keep;
  unsigned group;
  Form form;
};
struct Warpgroup {
  std::vector<Product> products[128];
  unsigned groups[128] = {};  // that are committed
  int arrived = 0;
  unsigned done = 0;
};
inline thread_local Warpgroup warpgroups[8];
inline Warpgroup& own_warpgroup() { return warpgroups[emulation::current / 128]; }

APART uint16_t read_bits(unsigned address) {
  uint16_t bits;
  const char* at = shared_at(emulation::dynamic_shared_memory<char>(), address, 2);
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

inline float value_of(uint16_t bits, bool is_bf16) {
  return is_bf16 ? __uint_as_float(unsigned{bits} << 16) : emulation::float_of({bits});
}

// Sixteen values of the row of that number: with the swizzle, or in groups of 8 rows of 8 values
// without; with the swizzle also of strips of 64 rows, in groups of 8 of K.
APART void read_row(uint64_t described, int row, double* values, bool turned, bool is_bf16) {
  const auto address = static_cast<unsigned>(described & 0x3fff) << 4;
  const auto of_group = static_cast<unsigned>(described >> 32 & 0x3fff) << 4;
  const auto of_values = static_cast<unsigned>(described >> 16 & 0x3fff) << 4;
  const bool is_swizzled = described >> 62 == 1;
  assert(is_swizzled || (!turned && described >> 62 == 0));
  for (int k = 0; k < 16; ++k) {
    if (turned) {
      const unsigned strip = address + row / 64 * of_values + k / 8 * of_group;
      values[k] = value_of(read_bits(swizzled(strip + k % 8 * 128 + row % 64 * 2)), is_bf16);
    } else if (is_swizzled) {
      const unsigned at = swizzled(address + row / 8 * of_group + row % 8 * 128 + k * 2);
      values[k] = value_of(read_bits(at), is_bf16);
    } else {
      const unsigned group = address + row / 8 * of_group + k / 8 * of_values;
      const uint16_t bits = read_bits(group + row % 8 * 16 + k % 8 * 2);
      values[k] = value_of(bits, is_bf16);
    }
  }
}

// As in the PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16".
APART void read_registers(const Warpgroup& warpgroup, size_t index, double (&rows)[64][16]) {
  for (int thread = 0; thread < 128; ++thread) {
    const Product& product = warpgroup.products[thread][index];
    for (int i = 0; i < 8; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int k = i / 4 * 8 + thread % 4 * 2 + i % 2;
      const uint32_t bits = product.registers[i / 2] >> i % 2 * 16 & 0xffff;
      rows[row][k] = emulation::float_of({static_cast<uint16_t>(bits)});
    }
  }
}

// The same, of the sums.
APART void multiply(const Warpgroup& warpgroup, size_t index) {
  static thread_local double rows[64][16];
  static thread_local double columns[256][16];
  const Product& first = warpgroup.products[0][index];
  if (first.registers) {
    read_registers(warpgroup, index, rows);
  } else {
    for (int row = 0; row < 64; ++row) {
      read_row(first.rows, row, rows[row], first.form.rows_turned, first.form.is_bf16);
    }
  }
  for (int column = 0; column < first.count; ++column) {
    const Form& form = first.form;
    read_row(first.columns, column, columns[column], form.columns_turned, form.is_bf16);
  }
  for (int thread = 0; thread < 128; ++thread) {
    const Product& product = warpgroup.products[thread][index];
    assert(product.rows == first.rows && product.columns == first.columns);
    assert(product.keep == first.keep && product.count == first.count);
    assert(product.group == first.group);
    for (int i = 0; i < product.count / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float& sum = product.sums[i];
      sum = emulation::sum_of_products(product.keep ? sum : 0.0, rows[row], columns[column]);
    }
  }
}

inline void begin_products() {}
inline void commit_products() { ++own_warpgroup().groups[emulation::current % 128]; }

// Does all products but those of the last groups.
APART void wait_for_all_but(unsigned late) {
  Warpgroup& own = own_warpgroup();
  const unsigned done = own.done;
  if (++own.arrived == 128) {
    auto& first = own.products[0];
    size_t count = 0;
    while (count < first.size() && first[count].group + late < own.groups[0]) {
      multiply(own, count++);
    }
    for (int thread = 0; thread < 128; ++thread) {
      auto& products = own.products[thread];
      assert(own.groups[thread] == own.groups[0]);
      products.erase(products.begin(), products.begin() + count);
    }
    own.arrived = 0;
    ++own.done;
  }
  while (own.done == done) emulation::yield();
}
template <int kLate>
void wait_for_groups() {
  wait_for_all_but(kLate);
}
inline void wait_for_products() { wait_for_groups<0>(); }
template <int kCount>
void wait_for_products(float (&)[kCount]) {
  wait_for_groups<0>();
}

// Has the warpgroup multiply when it waits.
APART void add_product(Product product) {
  if (!product.keep) std::fill(product.sums, product.sums + product.count / 2, NAN);
  const size_t thread = emulation::current % 128;
  product.group = own_warpgroup().groups[thread];
  own_warpgroup().products[thread].push_back(product);
}

template <int kValues>
void multiply_add(
    float (&sum)[kValues], uint64_t rows, uint64_t columns, bool keep, const Form& form = {}) {
  add_product({sum, nullptr, rows, columns, 2 * kValues, keep, 0, form});
}
template <int kValues>
void multiply_rows(
    float (&sum)[kValues], const uint32_t (&rows)[4], uint64_t columns, bool keep) {
  add_product({sum, rows, 0, columns, 2 * kValues, keep, 0});
}
inline float exp2(float x) { return std::exp2(x); }
inline void let_next_begin() {}
inline void wait_for_previous() {}

}  // namespace hopper_ptx
