namespace torch {
using namespace at;
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kUInt16 = at::kUInt16;
constexpr auto kUInt32 = at::kUInt32;
constexpr auto kUInt64 = at::kUInt64;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8, kI8 = kInt8;
constexpr auto kI16 = kInt16, kI32 = kInt32, kI64 = kInt64;
constexpr auto kU16 = kUInt16, kU32 = kUInt32, kU64 = kUInt64;
constexpr auto kF16 = kFloat16, kF32 = kFloat32, kF64 = kFloat64;
}
