// cuBLASLt descriptors: attributes kept as the bytes that were set, so that what is read back is what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "phantora/abi_libs.hpp"

namespace phantora::libs::cublaslt {

// Behind the opaque pointers that callers hold. Fits no caller-provided storage: the *Init calls are refused.
template <int kCount>
struct Attributes {
  static constexpr std::size_t kMaxBytes = 8;
  std::uint8_t bytes[kCount][kMaxBytes] = {};
  std::uint8_t size[kCount] = {};  // 0: not set

  template <typename Value>
  void put(int attribute, Value value) {
    static_assert(sizeof(Value) <= kMaxBytes);
    std::memcpy(bytes[attribute], &value, sizeof value);
    size[attribute] = sizeof value;
  }
  template <typename Value>
  Value get(int attribute, Value otherwise) const {
    if (size[attribute] == 0) return otherwise;
    Value value{};
    std::memcpy(&value, bytes[attribute], size[attribute] < sizeof value ? size[attribute] : sizeof value);
    return value;
  }
  int set(int attribute, const void* data, std::size_t count) {
    if (attribute < 0 || attribute >= kCount || data == nullptr || count == 0 || count > kMaxBytes)
      return abi::kCublasInvalidValue;
    std::memcpy(bytes[attribute], data, count);
    size[attribute] = static_cast<std::uint8_t>(count);
    return abi::kCublasSuccess;
  }
  int read(int attribute, void* data, std::size_t count, std::size_t* written) const {
    if (attribute < 0 || attribute >= kCount) return abi::kCublasInvalidValue;
    const std::size_t own = size[attribute] == 0 ? count : size[attribute];
    if (count == 0) {  // asks for the size
      if (written == nullptr) return abi::kCublasInvalidValue;
      *written = own;
      return abi::kCublasSuccess;
    }
    if (data == nullptr || count < own || count > kMaxBytes * 2) return abi::kCublasInvalidValue;
    std::memset(data, 0, count);
    std::memcpy(data, bytes[attribute], own < kMaxBytes ? own : kMaxBytes);
    if (written != nullptr) *written = own;
    return abi::kCublasSuccess;
  }
};

// cublasLtMatrixLayoutAttribute_t
enum LayoutAttribute { kType = 0, kOrder, kRows, kColumns, kLeading, kBatch, kBatchStride, kPlaneOffset, kBatchMode };
inline constexpr int kOrderColumn = 0, kOrderRow = 1;
struct Layout : Attributes<16> {};

// cublasLtMatmulDescAttributes_t
enum MatmulAttribute {
  kCompute = 0,
  kScaleType,
  kPointerMode,
  kTransposeA,
  kTransposeB,
  kTransposeC,
  kFill,
  kEpilogue,
  kSmTarget = 15
};
struct MatmulDesc : Attributes<48> {};

// cublasLtMatmulPreferenceAttributes_t
enum PreferenceAttribute { kSearchMode = 0, kMaxWorkspace = 1 };
struct Preference : Attributes<16> {};

// cublasLtMatrixTransformDescAttributes_t
struct TransformDesc : Attributes<8> {};
struct EmulationDesc : Attributes<8> {};

}  // namespace phantora::libs::cublaslt
