// A device tensor as plain data: what is needed to find its bytes again after the tensor itself has gone. Nothing here
// holds a reference to device memory, so deferring an op never changes what the caching allocator sees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

#include "api.hpp"

namespace phantora::adaptor {

using Ranges = c10::SmallVector<Range, 2>;  // most operators write one

// How far a tensor can be followed.
enum class Backing {
  kNone,    // undefined, on the CPU, or of zero elements: nothing on the device
  kOpaque,  // a wrapper, functional, fake or sparse tensor: the op is seen again underneath with real ones
  kDevice,  // strided bytes in device memory
};

Backing backing_of(const at::Tensor& tensor);

// Bytes really touched: dimensions expanded with stride 0 are counted once.
std::uint64_t touched_bytes(const at::Tensor& tensor);

struct Region {
  char* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::DimVector sizes;
  c10::DimVector strides;

  Region() = default;
  explicit Region(const at::Tensor& tensor);

  std::int64_t elements() const;
  std::size_t item_bytes() const { return c10::elementSize(dtype); }
  // Whether the elements fill one range without gaps.
  bool dense() const;
  // Appends the contiguous pieces. When there would be more than `limit` of them, appends the span from the first to
  // the last byte and returns false.
  bool append_ranges(Ranges& ranges, std::size_t limit) const;
  // The same bytes as a CPU tensor (device memory is mapped into the process at the same address).
  at::Tensor alias_on_cpu() const;
};

// The same for a tensor with device backing, without the detour where it is dense.
void append_ranges(const at::Tensor& tensor, Ranges& ranges, std::size_t limit);

bool overlaps(const Ranges& left, const Ranges& right);

}  // namespace phantora::adaptor
