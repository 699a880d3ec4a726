// Operators whose CUDA kernel reads its own device results back in the middle, through calls that no callback sees.
// Each is replaced by one that gives the same kernels but asks for the values where they are real.
#include <ATen/core/Tensor.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/nonzero.h>
#include <torch/library.h>

#include <memory>

#include "api.hpp"
#include "call.hpp"
#include "guards.hpp"
#include "region.hpp"

namespace at::native {
Tensor nonzero_cuda(const Tensor& self);  // in libtorch_cuda
}

namespace phantora::adaptor {

void install_overrides();

namespace {

bool all_known(const at::Tensor& tensor) {
  if (backing_of(tensor) != Backing::kDevice) return true;
  Ranges ranges;
  append_ranges(tensor, ranges, kInputLimitBytes);
  for (const Range& range : ranges) {
    api().settle(range.begin, range.bytes);
    if (api().is_known(range.begin, range.bytes) == 0) return false;
  }
  return true;
}

bool same_memory(const at::Tensor& self, const at::Tensor& other) {
  return self.is_alias_of(other) && self.storage_offset() == other.storage_offset() &&
         self.scalar_type() == other.scalar_type() && self.strides() == other.strides();
}

// ATen's own calls eq, all and item past the dispatcher. Unknown data counts as equal.
bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0 || same_memory(self, other)) return true;
  const bool answer = at::all(at::eq(self, other)).item().toBool();  // waits: values are settled after it
  return answer || !all_known(self) || !all_known(other);
}

// ATen's own counts with a kernel, reads the count, and allocates that much.
at::Tensor nonzero(const at::Tensor& self) {
  at::Tensor result = at::native::nonzero_cuda(self);  // its kernels and its wait
  if (backing_of(self) != Backing::kDevice || touched_bytes(self) > kInputLimitBytes) return result;
  if (!all_known(self)) return result;
  at::Tensor indices;
  {
    const QuietState quiet;
    indices = at::nonzero(Region(self).alias_on_cpu()).contiguous();
  }
  return indices.to(self.device());
}

}  // namespace

void install_overrides() {
  const QuietState quiet;  // torch warns when a kernel is replaced
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("equal", TORCH_FN(equal));
  library.impl("nonzero", TORCH_FN(nonzero));
}

}  // namespace phantora::adaptor
