#include "op_info.hpp"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace phantora::adaptor {

namespace {

// Writes to an argument's metadata or to nothing, though the schema says "mutable"; or shares memory with an argument,
// though the schema says "new".
constexpr std::array kIgnored = {
    "aten::record_stream",
    "aten::set_data",
    "aten::_resize_output_",
    "aten::resize_",
    "aten::resize_as_",
    "aten::set_",
    "aten::requires_grad_",
    "aten::retain_grad",
    "aten::_unsafe_view",
    "aten::unsafe_split",
    "aten::unsafe_chunk",
    "aten::unsafe_split_with_sizes",
    "aten::lift",
    "aten::_local_scalar_dense",
    "aten::is_pinned",
    "aten::_pin_memory",
    "aten::_nested_view_from_buffer",
    "aten::_backward",
    "aten::_assert_async",
    "aten::_fw_primal",
    "aten::_make_dual",
};

constexpr std::array kAllocation = {
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::_empty_affine_quantized",
};

// In-place operators whose result does not depend on what was there.
constexpr std::array kOverwrites = {
    "aten::fill_",      "aten::zero_",      "aten::copy_",          "aten::uniform_",       "aten::normal_",
    "aten::random_",    "aten::cauchy_",    "aten::exponential_",   "aten::eye_",           "aten::log_normal_",
    "aten::geometric_", "aten::bernoulli_", "aten::_foreach_zero_", "aten::_foreach_copy_",
};

// Namespaces whose device bytes are moved by somebody who tells the shim himself (NCCL), or that move none.
constexpr std::array kForeignIgnored = {
    "c10d::", "_c10d_functional::", "_c10d_functional_autograd::", "_dtensor::", "symm_mem::", "profiler::", "prim::",
};

template <typename List>
bool contains(const List& list, std::string_view name) {
  for (const char* entry : list) {
    if (name == entry) return true;
  }
  return false;
}

bool starts_with_any(std::string_view name) {
  for (const char* prefix : kForeignIgnored) {
    if (name.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

bool is_tensor_like(const c10::TypePtr& type) {
  if (type->isSubtypeOf(*c10::TensorType::get())) return true;
  if (auto optional = type->cast<c10::OptionalType>()) return is_tensor_like(optional->getElementType());
  if (auto list = type->cast<c10::ListType>()) return is_tensor_like(list->getElementType());
  return false;
}

OpClass classify(const c10::OperatorHandle& op, std::string_view name) {
  if (op.hasTag(at::Tag::inplace_view) || contains(kIgnored, name)) return OpClass::kIgnored;
  if (contains(kAllocation, name)) return OpClass::kAllocation;
  bool writes = false;
  for (const c10::Argument& argument : op.schema().arguments()) {
    writes |= argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  }
  for (const c10::Argument& result : op.schema().returns()) {
    if (!is_tensor_like(result.type())) continue;
    const c10::AliasInfo* alias = result.alias_info();
    if (alias == nullptr || alias->isWrite()) writes = true;
  }
  if (!writes) return OpClass::kIgnored;
  if (name.rfind("aten::", 0) != 0) return starts_with_any(name) ? OpClass::kIgnored : OpClass::kForeign;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return OpClass::kKernel;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    return OpClass::kLeafOnly;
  }
  return OpClass::kComposite;
}

void describe(OpInfo& info, const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  info.op_class = classify(op, info.name);
  info.random = op.hasTag(at::Tag::nondeterministic_seeded);
  info.is_copy = info.name == "aten::copy_";
  const bool overwrites = contains(kOverwrites, info.name);
  bool plain = true;
  bool takes_generator = false;
  int mutable_singles = 0;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    info.write_only.push_back(written && (argument.is_out() || overwrites));
    if (written && is_tensor_like(argument.type())) {
      info.mutable_arguments.push_back(static_cast<int>(i));
      mutable_singles += argument.type()->isSubtypeOf(*c10::TensorType::get()) ? 1 : 0;
    }
    const auto kind = argument.type()->kind();
    takes_generator |= argument.name() == "generator";
    plain &= kind != c10::TypeKind::StreamObjType && kind != c10::TypeKind::StorageType;
  }
  std::size_t written_returns = 0;
  for (const c10::Argument& result : schema.returns()) {
    const bool written = result.alias_info() != nullptr && result.alias_info()->isWrite();
    written_returns += written ? 1 : 0;
    info.fresh_returns.push_back(result.alias_info() == nullptr && is_tensor_like(result.type()));
  }
  info.returns_cover_mutable = written_returns == info.mutable_arguments.size() &&
                               mutable_singles == static_cast<int>(info.mutable_arguments.size());
  // A random operator must take a generator: the CPU's default one is the script's.
  plain &= !info.random || takes_generator || info.name == "aten::native_dropout";
  info.executable = plain && (info.op_class == OpClass::kKernel || info.op_class == OpClass::kLeafOnly) &&
                    op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

const OpInfo* global_entry(const char* name, const char* overload) {
  static std::mutex mutex;
  static auto& entries = *new std::map<std::pair<std::string, std::string>, std::unique_ptr<OpInfo>>();
  const std::lock_guard<std::mutex> lock(mutex);
  auto& entry = entries[{name, overload}];
  if (entry == nullptr) {
    entry = std::make_unique<OpInfo>();
    entry->name = name;
    entry->overload = overload;
    entry->handle = c10::Dispatcher::singleton().findSchema(c10::OperatorName(name, overload));
    if (entry->handle.has_value()) describe(*entry, *entry->handle);
  }
  return entry.get();
}

}  // namespace

const OpInfo* info_of(const at::RecordFunction& function) {
  // name() points into the operator's schema, so its address identifies the operator while that is registered.
  thread_local std::unordered_map<const char*, const OpInfo*> cache;
  const char* name = function.name();
  const char* overload = function.overload_name();
  const auto found = cache.find(name);
  if (found != cache.end() && found->second->name == name && found->second->overload == overload) return found->second;
  const OpInfo* info = global_entry(name, overload);
  cache[name] = info;
  return info;
}

}  // namespace phantora::adaptor
