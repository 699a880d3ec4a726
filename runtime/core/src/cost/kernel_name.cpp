#include "kernel_name.hpp"

#include <algorithm>
#include <array>

namespace phantora::cost {
namespace {

constexpr std::uint32_t kMultiTensorChunk = 65536;  // elements a block works on (ATen/native/cuda/MultiTensorApply.cuh)

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <std::size_t N>
bool contains_any(std::string_view text, const std::array<std::string_view, N>& parts) {
  return std::any_of(parts.begin(), parts.end(), [text](std::string_view part) { return contains(text, part); });
}

bool digit(char c) { return c >= '0' && c <= '9'; }

double builtin_bytes(char code) {
  switch (code) {
    case 'a':
    case 'h':
    case 'b':
    case 'c':
      return 1.0;
    case 's':
    case 't':
      return 2.0;
    case 'i':
    case 'j':
    case 'f':
      return 4.0;
    case 'l':
    case 'm':
    case 'd':
    case 'x':
    case 'y':
      return 8.0;
    default:
      return 0.0;
  }
}

// The size of an element as the functor's type arguments give it; false when the name does not say.
bool element_size(std::string_view name, double& bytes) {
  // A conversion from fp32 with a kernel of its own (bfloat16_copy_kernel_cuda, float16_copy_...,
  // bfloat16tofloat32_copy_...).
  if (contains(name, "float16_copy_kernel_cuda") || contains(name, "float32_copy_kernel_cuda")) {
    bytes = 3.0;
    return true;
  }
  if (contains(name, "BFloat16") || contains(name, "c104Half") || contains(name, "c10::Half") ||
      contains(name, "bfloat16")) {
    bytes = 2.0;
    return true;
  }
  if (contains(name, "complexId") || contains(name, "complex<double>")) {
    bytes = 16.0;
    return true;
  }
  if (contains(name, "complexIf") || contains(name, "complex<float>")) {
    bytes = 8.0;
    return true;
  }
  if (contains(name, "Float8_")) {
    bytes = 1.0;
    return true;
  }
  // `...FunctorIfE`, `CUDAFunctor_addIlE`: the letter after the first `I` behind the functor's name
  for (std::string_view mark : {std::string_view("Functor"), std::string_view("CUDAFunctor")}) {
    const auto at = name.find(mark);
    if (at == std::string_view::npos) continue;
    const auto open = name.find('I', at + mark.size());
    if (open != std::string_view::npos && open + 1 < name.size() && open - at < 40) {
      bytes = builtin_bytes(name[open + 1]);
      if (bytes > 0.0) return true;
    }
  }
  // a lambda: its result and argument types stand before the array of pointers, `E7_ffbE...St5array`
  const auto array = name.find("St5array");
  if (array != std::string_view::npos && array > 2) {
    std::size_t end = array;
    while (end > 0 && name[end - 1] != '_') --end;
    double sum = 0.0;
    std::uint32_t count = 0;
    for (std::size_t i = end; i < array && builtin_bytes(name[i]) > 0.0; ++i) {
      sum += builtin_bytes(name[i]);
      ++count;
    }
    if (count > 0) {
      bytes = sum / count;
      return true;
    }
  }
  return false;
}

// `std::array<char*, N>`: the operands of an elementwise kernel, outputs included.
std::uint32_t operand_count(std::string_view name) {
  for (std::string_view mark : {std::string_view("St5arrayIPcLm"), std::string_view("std::array<char*, "),
                                std::string_view("std::array<char *, ")}) {
    const auto at = name.find(mark);
    if (at == std::string_view::npos) continue;
    std::uint32_t count = 0;
    for (std::size_t i = at + mark.size(); i < name.size() && digit(name[i]) && count < 100; ++i) {
      count = count * 10 + static_cast<std::uint32_t>(name[i] - '0');
    }
    return count;
  }
  return 0;
}

void parse_elementwise(std::string_view name, std::size_t at, KernelName& result) {
  result.operands = operand_count(name);
  const auto values = template_values(name, at);
  if (contains(name, "vectorized_elementwise_kernel")) {
    // 128 threads, each at least four elements or one vector
    const std::int64_t vector = values.empty() ? 4 : std::clamp<std::int64_t>(values[0], 4, 16);
    result.elements_per_block = static_cast<std::uint32_t>(128 * vector);
  } else if (contains(name, "unrolled_elementwise_kernel")) {
    result.elements_per_block = 512;
  } else if (values.size() >= 2) {
    result.elements_per_block = static_cast<std::uint32_t>(std::clamp<std::int64_t>(values[0], 1, 1024) *
                                                           std::clamp<std::int64_t>(values[1], 1, 64));
  }
  result.writes_only = contains(name, "FillFunctor");
  if (result.writes_only) result.operands = 1;
}

void parse_multi_tensor(std::string_view name, KernelName& result) {
  result.elements_per_block = kMultiTensorChunk;
  const double size = result.element_bytes;
  auto at = name.find("multi_tensor_apply_kernel");
  const auto functor = name.find("Functor", at);
  const auto values = template_values(name, functor == std::string_view::npos ? at : functor);
  if (contains(name, "FusedAdam")) {
    // reads parameter, gradient, two moments (three with amsgrad); writes all but the gradient
    const bool amsgrad = !values.empty() && values[0] >= 5;
    result.multi_tensor_bytes = (amsgrad ? 9.0 : 7.0) * size;
  } else if (contains(name, "FusedSgd")) {
    result.multi_tensor_bytes = (!values.empty() && values[0] >= 3 ? 5.0 : 3.0) * size;
  } else if (contains(name, "FusedAdagrad")) {
    result.multi_tensor_bytes = 5.0 * size;
  } else {
    // <type, depth, tensors read, tensor written>
    double reads = 1.0, writes = 1.0;
    if (values.size() >= 2) reads = static_cast<double>(std::clamp<std::int64_t>(values[1], 0, 5));
    if (contains(name, "ZeroFunctor")) reads = 0.0;
    if (contains(name, "LpNorm") || contains(name, "LpMax")) writes = 0.0;
    result.multi_tensor_bytes = (reads + writes) * size;
  }
}

}  // namespace

std::vector<std::int64_t> template_values(std::string_view name, std::size_t from) {
  std::vector<std::int64_t> values;
  if (from >= name.size()) return values;
  const bool mangled = name.substr(0, 2) == "_Z";
  for (std::size_t i = from; i < name.size() && values.size() < 32; ++i) {
    std::size_t start = 0;
    if (mangled) {
      if (name[i] != 'L' || i + 2 >= name.size()) continue;
      const char kind = name[i + 1];
      if (kind != 'i' && kind != 'b' && kind != 'j' && kind != 'l' && kind != 'm') continue;
      start = i + 2;
    } else {
      if (name[i] != '<' && name[i] != ',') continue;
      start = i + 1;
      while (start < name.size() && name[start] == ' ') ++start;
      if (name.substr(start, 6) == "(bool)") start += 6;
      if (name.substr(start, 5) == "(int)") start += 5;
      if (name.substr(start, 4) == "true") values.push_back(1);
      if (name.substr(start, 5) == "false") values.push_back(0);
    }
    std::int64_t value = 0;
    std::size_t end = start;
    for (; end < name.size() && digit(name[end]) && value < (1LL << 50); ++end) value = value * 10 + (name[end] - '0');
    if (end == start || end >= name.size()) continue;
    if (mangled ? name[end] == 'E' : name[end] == ',' || name[end] == '>' || name[end] == ' ') values.push_back(value);
  }
  return values;
}

KernelName parse_kernel_name(std::string_view name) {
  constexpr std::array<std::string_view, 7> kAttention{
      "flash_fwd", "flash_bwd", "fmha_cutlass", "AttentionKernel", "AttentionBackwardKernel", "Flash_fwd", "Flash_bwd"};
  constexpr std::array<std::string_view, 3> kConcatenate{"CatArrayBatchedCopy", "chunk_cat", "split_with_sizes_copy"};
  constexpr std::array<std::string_view, 6> kNormBackward{"layer_norm_grad",   "GammaBeta",     "cuComputeGradInput",
                                                          "cuComputePartGrad", "rms_norm_grad", "group_norm_backward"};
  constexpr std::array<std::string_view, 6> kNorm{"layer_norm", "LayerNorm",        "RowwiseMoments",
                                                  "rms_norm",   "cuApplyLayerNorm", "batch_norm"};
  constexpr std::array<std::string_view, 3> kSoftmax{"SoftMax", "softmax_warp", "Softmax"};
  constexpr std::array<std::string_view, 11> kGather{"indexSelect",         "vectorized_gather", "index_elementwise",
                                                     "scatter_gather",      "indexing_backward", "embedding_",
                                                     "compute_grad_weight", "sum_and_scatter",   "EmbeddingBag",
                                                     "indexFunc",           "krn_partial"};
  constexpr std::array<std::string_view, 3> kRandom{"distribution_", "fused_dropout", "randperm"};
  constexpr std::array<std::string_view, 12> kStream{"cub",
                                                     "thrust",
                                                     "triu_tril",
                                                     "tensor_kernel_scan",
                                                     "elementwise_kernel_with_index",
                                                     "topk",
                                                     "bitonicSort",
                                                     "radixSort",
                                                     "sort",
                                                     "nonzero",
                                                     "Transpose",
                                                     "transpose"};
  KernelName result;
  result.element_known = element_size(name, result.element_bytes);
  if (contains_any(name, kAttention)) {
    result.family = Family::kAttention;
  } else if (contains(name, "multi_tensor_apply_kernel")) {
    result.family = Family::kMultiTensor;
    parse_multi_tensor(name, result);
  } else if (contains_any(name, kConcatenate)) {
    result.family = Family::kConcatenate;
  } else if (contains_any(name, kRandom)) {
    result.family = Family::kRandom;
    result.writes_only = true;
  } else if (const auto at = name.find("vectorized_elementwise_kernel"); at != std::string_view::npos) {
    result.family = Family::kElementwise;
    parse_elementwise(name, at, result);
  } else if (const auto unrolled = name.find("unrolled_elementwise_kernel"); unrolled != std::string_view::npos) {
    result.family =
        contains(name, "LoadWithCast") || contains(name, "StoreWithCast") ? Family::kCasting : Family::kElementwise;
    parse_elementwise(name, unrolled, result);
  } else if (contains_any(name, kGather)) {
    result.family = Family::kGather;
  } else if (contains(name, "elementwise_kernel_with_index")) {
    result.family = Family::kStream;
    result.writes_only = true;
  } else if (const auto strided = name.find("elementwise_kernel"); strided != std::string_view::npos) {
    result.family = Family::kStrided;
    parse_elementwise(name, strided, result);
  } else if (contains_any(name, kNormBackward)) {
    result.family = Family::kNormBackward;
    result.reads_only = contains(name, "GammaBeta") || contains(name, "PartGrad");
  } else if (contains_any(name, kNorm)) {
    result.family = Family::kNorm;
  } else if (contains_any(name, kSoftmax)) {
    result.family = Family::kSoftmax;
  } else if (contains(name, "nll_loss") || contains(name, "cleanup")) {  // lpnorm_cleanup: a value a tensor
    result.family = Family::kSparseRows;
  } else if (contains(name, "reduce_kernel") || contains(name, "DeviceReduce")) {
    result.family = Family::kReduction;
  } else if (name.substr(0, 7) == "triton_") {
    result.family = Family::kTriton;
  } else if (contains_any(name, kStream)) {
    result.family = Family::kStream;
  } else if (contains(name, "at6native") || contains(name, "at::native") || contains(name, "kernelPointwiseApply")) {
    result.family = Family::kAten;
  }
  return result;
}

}  // namespace phantora::cost
