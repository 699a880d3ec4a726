// What a kernel's name says: its family, operand count and element size. Names are mangled C++ (torch's own kernels),
// demangled C++ or plain (Triton). Pure functions of the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace phantora::cost {

enum class Family : std::uint8_t {
  kElementwise,  // vectorised or unrolled, contiguous
  kCasting,      // elementwise that converts types while loading or storing
  kStrided,      // elementwise over strides or broadcasts
  kMultiTensor,  // foreach and fused optimizers
  kReduction,
  kNorm,
  kNormBackward,
  kSoftmax,
  kConcatenate,  // cat, split and chunk copies
  kGather,       // index, embedding, scatter
  kSparseRows,   // one element a row, whatever the input's size: nll_loss
  kRandom,
  kStream,  // reads its inputs and writes its outputs once: sort passes, scans, triangles
  kTriton,
  kAttention,  // see attention.hpp
  kAten,       // torch's own, no nearer known
  kOther,
};

struct KernelName {
  Family family = Family::kOther;
  std::uint32_t operands = 0;            // tensors that one element of work touches; 0 unknown
  std::uint32_t elements_per_block = 0;  // 0 unknown
  double element_bytes = 4.0;            // per operand
  bool element_known = false;
  bool writes_only = false;         // fills
  bool reads_only = false;          // gradients of weights: what they write is small
  double multi_tensor_bytes = 0.0;  // kMultiTensor: bytes per element of work
};

KernelName parse_kernel_name(std::string_view name);

// Integer and boolean template arguments after `from` in order: `Li128E`, `Lb1E`, or `128`, `true` when demangled.
std::vector<std::int64_t> template_values(std::string_view name, std::size_t from);

}  // namespace phantora::cost
