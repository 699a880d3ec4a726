#include "region.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace phantora::adaptor {

namespace {

struct Dimension {
  std::int64_t size;
  std::int64_t stride;
};

// Dimensions that move through memory, innermost (smallest stride) first, neighbours merged.
c10::SmallVector<Dimension, 8> merged_dimensions(const Region& region) {
  c10::SmallVector<Dimension, 8> dimensions;
  for (std::size_t i = 0; i < region.sizes.size(); ++i) {
    if (region.sizes[i] != 1 && region.strides[i] != 0) dimensions.push_back({region.sizes[i], region.strides[i]});
  }
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  c10::SmallVector<Dimension, 8> merged;
  for (const Dimension& dimension : dimensions) {
    if (!merged.empty() && merged.back().size * merged.back().stride == dimension.stride) {
      merged.back().size *= dimension.size;
    } else {
      merged.push_back(dimension);
    }
  }
  return merged;
}

}  // namespace

Backing backing_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return Backing::kNone;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::DispatchKeySet keys = impl->key_set();
  constexpr c10::DispatchKeySet kWrapped({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                          c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  if (keys.has_any(kWrapped)) return Backing::kOpaque;
  if (!impl->is_cuda()) return Backing::kNone;
  if (impl->layout() != c10::kStrided || !impl->has_storage() || impl->has_symbolic_sizes_strides()) {
    return Backing::kOpaque;
  }
  if (impl->numel() == 0) return Backing::kNone;
  return impl->unsafe_storage().data() == nullptr ? Backing::kOpaque : Backing::kDevice;
}

std::uint64_t touched_bytes(const at::Tensor& tensor) {
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] != 0 || sizes[i] == 0) elements *= static_cast<std::uint64_t>(sizes[i]);
  }
  return elements * tensor.unsafeGetTensorImpl()->itemsize();
}

namespace {

char* data_of(const at::Tensor& tensor) {
  // Read through the storage: Tensor::data_ptr() would materialise copy-on-write storages.
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto* base = static_cast<const char*>(impl->unsafe_storage().data());
  return const_cast<char*>(base) + impl->storage_offset() * static_cast<std::int64_t>(impl->itemsize());
}

}  // namespace

Region::Region(const at::Tensor& tensor)
    : data(data_of(tensor)),
      dtype(tensor.scalar_type()),
      sizes(tensor.sizes().begin(), tensor.sizes().end()),
      strides(tensor.strides().begin(), tensor.strides().end()) {}

std::int64_t Region::elements() const {
  std::int64_t count = 1;
  for (std::int64_t size : sizes) count *= size;
  return count;
}

bool Region::dense() const {
  const auto dimensions = merged_dimensions(*this);
  return dimensions.empty() || (dimensions.size() == 1 && dimensions[0].stride == 1);
}

bool Region::append_ranges(Ranges& ranges, std::size_t limit) const {
  if (elements() == 0) return true;
  auto dimensions = merged_dimensions(*this);
  std::size_t run_bytes = item_bytes();
  if (!dimensions.empty() && dimensions[0].stride == 1) {
    run_bytes *= static_cast<std::size_t>(dimensions[0].size);
    dimensions.erase(dimensions.begin());
  }
  std::size_t pieces = 1;
  std::int64_t last = 0;
  for (const Dimension& dimension : dimensions) {
    pieces *= static_cast<std::size_t>(dimension.size);
    last += (dimension.size - 1) * dimension.stride;
  }
  const auto item = static_cast<std::int64_t>(item_bytes());
  if (pieces > limit) {
    ranges.push_back({data, static_cast<std::size_t>(last * item) + run_bytes});
    return false;
  }
  c10::SmallVector<std::int64_t, 8> index(dimensions.size(), 0);
  char* at = data;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    ranges.push_back({at, run_bytes});
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      at += dimensions[i].stride * item;
      if (++index[i] < dimensions[i].size) break;
      at -= dimensions[i].size * dimensions[i].stride * item;
      index[i] = 0;
    }
  }
  return true;
}

at::Tensor Region::alias_on_cpu() const {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  if (elements() == 0) return at::empty_strided(sizes, strides, options);
  return at::from_blob(data, sizes, strides, options);
}

void append_ranges(const at::Tensor& tensor, Ranges& ranges, std::size_t limit) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_non_overlapping_and_dense_or_false()) {
    ranges.push_back({data_of(tensor), static_cast<std::size_t>(impl->numel()) * impl->itemsize()});
  } else {
    Region(tensor).append_ranges(ranges, limit);
  }
}

bool overlaps(const Ranges& left, const Ranges& right) {
  for (const Range& a : left) {
    for (const Range& b : right) {
      if (a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes) return true;
    }
  }
  return false;
}

}  // namespace phantora::adaptor
