// What is known about an operator before it runs, worked out once from its schema and its dispatch table. The default
// holds for all operators; only exceptions are listed, in op_info.cpp.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <optional>
#include <string>
#include <vector>

namespace phantora::adaptor {

enum class OpClass {
  kIgnored,     // views, metadata, bookkeeping: no device bytes change
  kAllocation,  // new memory whose content is undefined
  kComposite,   // made of other operators, which are seen themselves
  kLeafOnly,    // has one kernel for all devices: runs itself if no other operator is seen inside it, else a composite
  kKernel,      // has a CUDA kernel
  kForeign,     // a custom operator: never executed; what it writes and its inner operators did not is unknown
};

struct OpInfo {
  std::string name;  // "aten::add"; lives for ever, so that its address may be kept
  std::string overload;
  OpClass op_class = OpClass::kIgnored;
  std::optional<c10::OperatorHandle> handle;
  bool executable = false;             // has a CPU kernel and only arguments we can hand over
  bool random = false;                 // draws from a generator
  bool is_copy = false;                // aten::copy_
  std::vector<int> mutable_arguments;  // positions of tensor (or tensor list) arguments that are written
  std::vector<bool> write_only;        // per argument: written without being read
  std::vector<bool> fresh_returns;     // per return: new memory, not an argument
  bool returns_cover_mutable = false;  // every mutable argument is returned, in order

  bool has_values() const { return op_class != OpClass::kIgnored && op_class != OpClass::kComposite; }
};

// The entry of the operator that `function` records; never null. Cheap after the first call per thread and operator.
const OpInfo* info_of(const at::RecordFunction& function);

}  // namespace phantora::adaptor
