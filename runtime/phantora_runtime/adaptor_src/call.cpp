#include "call.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/ones_like.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "api.hpp"
#include "guards.hpp"

namespace phantora::adaptor {

namespace {

bool debugging() {
  static const bool value = std::getenv("PHANTORA_ADAPTOR_DEBUG") != nullptr;
  return value;
}

bool capture_item(const at::Tensor& tensor, Item& item) {
  switch (backing_of(tensor)) {
    case Backing::kOpaque:
      return false;
    case Backing::kDevice:
      if (tensor.is_conj() || tensor.is_neg()) return false;  // a region has no such bits
      item.device = true;
      item.region = Region(tensor);
      return true;
    case Backing::kNone:
      break;
  }
  if (!tensor.defined()) return true;
  if (tensor.is_cuda()) {  // zero elements: no bytes, but a shape
    item.device = true;
    item.region.dtype = tensor.scalar_type();
    item.region.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    item.region.strides.assign(tensor.strides().begin(), tensor.strides().end());
    return true;
  }
  if (!tensor.is_cpu() || tensor.layout() != c10::kStrided || touched_bytes(tensor) > kInputLimitBytes) return false;
  // Copied now: the script may change it before a deferred call runs. Python numbers arrive as tensors of dimension 0
  // with a flag that takes them out of type promotion; a copy loses it.
  const QuietState quiet;
  item.host = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) item.host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return true;
}

at::Tensor tensor_of(const Item& item) { return item.device ? item.region.alias_on_cpu() : item.host; }

c10::IValue make_value(const CallArgument& argument, std::uint64_t seed) {
  switch (argument.kind) {
    case CallArgument::Kind::kValue:
      return argument.value;
    case CallArgument::Kind::kDevice:
      return c10::Device(c10::kCPU);
    case CallArgument::Kind::kGenerator:
      return at::detail::createCPUGenerator(seed);
    case CallArgument::Kind::kTensor:
      return tensor_of(argument.items[0]);
    case CallArgument::Kind::kTensorList: {
      c10::List<at::Tensor> list;
      for (const Item& item : argument.items) list.push_back(tensor_of(item));
      return list;
    }
    case CallArgument::Kind::kOptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Item& item : argument.items) {
        at::Tensor tensor = tensor_of(item);
        list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
      }
      return list;
    }
  }
  return {};
}

}  // namespace

bool Call::capture(c10::ArrayRef<c10::IValue> inputs) {
  arguments_.reserve(inputs.size());
  const auto& schema = info_.handle->schema().arguments();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const c10::IValue& input = inputs[i];
    CallArgument& argument = arguments_.emplace_back();
    if (input.isTensor()) {
      argument.kind = CallArgument::Kind::kTensor;
      if (!capture_item(input.toTensor(), argument.items.emplace_back())) return false;
    } else if (input.isTensorList() || input.isOptionalTensorList()) {
      argument.kind = input.isTensorList() ? CallArgument::Kind::kTensorList : CallArgument::Kind::kOptionalTensorList;
      for (const c10::IValue& element : input.toListRef()) {
        Item& item = argument.items.emplace_back();
        if (element.isTensor() && !capture_item(element.toTensor(), item)) return false;
      }
    } else if (input.isDevice()) {
      argument.kind = CallArgument::Kind::kDevice;
    } else if (input.isGenerator() ||
               (input.isNone() && i < schema.size() && schema[i].name() == "generator" && info_.random)) {
      argument.kind = CallArgument::Kind::kGenerator;
      argument.value = input;  // until finish(): its seed is wanted
    } else if (input.isObject() || input.isPyObject() || input.isStorage() || input.isStream()) {
      return false;
    } else {
      argument.value = input;
    }
  }
  return true;
}

void Call::finish(std::vector<std::vector<Item>> results, const std::vector<Region>& written, Ranges ranges,
                  std::uint64_t seed) {
  results_ = std::move(results);
  ranges_ = std::move(ranges);
  seed_ = seed;
  for (CallArgument& argument : arguments_) {
    if (argument.kind == CallArgument::Kind::kGenerator) argument.value = {};
  }
  // `out=` tensors may have been resized by the operator; run over what they have become.
  if (written.size() != info_.mutable_arguments.size()) return;
  for (std::size_t i = 0; i < written.size(); ++i) {
    CallArgument& argument = arguments_[static_cast<std::size_t>(info_.mutable_arguments[i])];
    if (argument.kind != CallArgument::Kind::kTensor) continue;
    argument.items[0].device = true;
    argument.items[0].region = written[i];
  }
}

Ranges Call::reads() const {
  Ranges ranges;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (info_.write_only[i]) continue;
    for (const Item& item : arguments_[i].items) {
      if (item.device) item.region.append_ranges(ranges, kInputLimitBytes);
    }
  }
  return ranges;
}

bool Call::inputs_known() const {
  for (const Range& range : reads()) {
    if (api().is_known(range.begin, range.bytes) == 0) return false;
  }
  return true;
}

void Call::store(const c10::IValue& value, const std::vector<Item>& items) const {
  auto store_one = [](const at::Tensor& tensor, const Item& item) {
    if (!item.device || item.region.elements() == 0) return;
    at::Tensor target = item.region.alias_on_cpu();
    TORCH_CHECK(tensor.defined() && tensor.sizes() == target.sizes(), "another shape on the CPU");
    if (tensor.const_data_ptr() != target.const_data_ptr()) target.copy_(tensor);
  };
  if (value.isTensor()) {
    if (!items.empty()) store_one(value.toTensor(), items[0]);
  } else if (value.isTensorList()) {
    const auto list = value.toListRef();
    TORCH_CHECK(list.size() == items.size(), "another number of results on the CPU");
    for (std::size_t i = 0; i < items.size(); ++i) store_one(list[i].toTensor(), items[i]);
  }
}

// The one common random operator without a generator argument. The CPU's default generator must not be touched: a
// deferred call runs at any time, on any thread.
void Call::execute_dropout() const {
  const at::Tensor input = tensor_of(arguments_[0].items[0]);
  const double probability = arguments_[1].value.toDouble();
  const bool training = !arguments_[2].value.isBool() || arguments_[2].value.toBool();
  at::Tensor mask = at::ones_like(input, input.options().dtype(at::kBool));
  if (training) mask.bernoulli_(1 - probability, at::detail::createCPUGenerator(seed_));
  const double scale = training && probability < 1 ? 1 / (1 - probability) : 1;
  store(input.mul(mask).mul_(scale), results_[0]);
  store(mask, results_[1]);
}

bool Call::execute() {
  const QuietState quiet;
  try {
    if (info_.name == "aten::native_dropout") {
      execute_dropout();
      return true;
    }
    std::vector<c10::IValue> stack;
    stack.reserve(arguments_.size());
    for (const CallArgument& argument : arguments_) stack.push_back(make_value(argument, seed_));
    info_.handle->callBoxed(&stack);
    for (std::size_t i = 0; i < stack.size() && i < results_.size(); ++i) {
      if (info_.fresh_returns[i]) store(stack[i], results_[i]);
    }
    return true;
  } catch (const std::exception& error) {
    if (debugging()) std::fprintf(stderr, "phantora: %s not executed: %.200s\n", info_.name.c_str(), error.what());
    return false;
  }
}

void Call::run() {
  const bool real = inputs_known() && execute();
  for (const Range& range : ranges_) {
    if (real) {
      api().mark_known(range.begin, range.bytes);
    } else {
      api().mark_unknown(range.begin, range.bytes);
    }
  }
}

}  // namespace phantora::adaptor
