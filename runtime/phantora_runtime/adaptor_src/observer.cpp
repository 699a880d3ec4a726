// The callback that torch runs around every operator: names the operator and its bytes for the kernels inside it, and
// keeps the values of small tensors real (or says that they are unknown).
#include <ATen/Context.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "api.hpp"
#include "call.hpp"
#include "op_info.hpp"
#include "region.hpp"

namespace phantora::adaptor {

namespace {

struct Frame {  // one operator in progress on this thread
  const OpInfo* info = nullptr;
  std::uint64_t input_bytes = 0;
  std::uint64_t mutable_bytes = 0;
  bool opaque = false;       // has wrapper tensors: what happens is seen inside
  bool big = false;          // some input is beyond the limit
  bool same_inside = false;  // the same operator was seen inside (a dispatch mode called it again)
  bool inner = false;        // some operator with values was seen inside
  int host_mutable = 0;      // mutable arguments that are CPU tensors
  int host_inputs = 0, device_inputs = 0;
  int device = 0;  // index of the last device tensor's GPU
  std::unique_ptr<Call> call;
  Ranges mutables;   // mutable arguments that are not returned
  Ranges arguments;  // spans of all inputs; custom operators only
  Ranges wrote;      // what was written inside, by operators or copies

  void reset(const OpInfo* operator_info) {
    info = operator_info;
    input_bytes = mutable_bytes = 0;
    opaque = big = same_inside = inner = false;
    host_mutable = host_inputs = device_inputs = device = 0;
    call.reset();
    mutables.clear();
    arguments.clear();
    wrote.clear();
  }
};

struct Frames {
  std::deque<Frame> stack;  // reused; references stay valid while it grows
  std::size_t depth = 0;
};

Frames& frames() {
  thread_local Frames instance;
  return instance;
}

void look_at(Frame& frame, const at::Tensor& tensor, bool is_mutable) {
  switch (backing_of(tensor)) {
    case Backing::kOpaque:
      frame.opaque = true;
      return;
    case Backing::kNone:
      if (tensor.defined() && !tensor.is_cuda()) {
        ++frame.host_inputs;
        if (is_mutable) ++frame.host_mutable;
      }
      return;
    case Backing::kDevice:
      break;
  }
  ++frame.device_inputs;
  frame.device = tensor.get_device();
  const std::uint64_t bytes = touched_bytes(tensor);
  frame.input_bytes += bytes;
  if (bytes > kInputLimitBytes) frame.big = true;
  if (is_mutable) {
    frame.mutable_bytes += bytes;
    if (!frame.info->returns_cover_mutable) append_ranges(tensor, frame.mutables, kPieceLimit);
  }
  if (frame.info->op_class == OpClass::kForeign) append_ranges(tensor, frame.arguments, 1);
}

void look_at_inputs(Frame& frame, c10::ArrayRef<const c10::IValue> inputs) {
  const OpInfo& info = *frame.info;
  std::size_t next_mutable = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_mutable = next_mutable < info.mutable_arguments.size() &&
                            static_cast<std::size_t>(info.mutable_arguments[next_mutable]) == i;
    if (is_mutable) ++next_mutable;
    const c10::IValue& input = inputs[i];
    if (input.isTensor()) {
      look_at(frame, input.toTensor(), is_mutable);
    } else if (input.isTensorList() || input.isOptionalTensorList()) {
      for (const c10::IValue& element : input.toListRef()) {
        if (element.isTensor()) look_at(frame, element.toTensor(), is_mutable);
      }
    }
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  Frames& all = frames();
  if (all.depth == all.stack.size()) all.stack.emplace_back();
  Frame& frame = all.stack[all.depth++];
  frame.reset(info_of(function));
  look_at_inputs(frame, function.inputs());
  api().op_begin(frame.info->name.c_str(), frame.input_bytes);
  if (frame.info->executable && !frame.big && !frame.opaque && frame.host_mutable == 0 &&
      !(frame.info->is_copy && frame.host_inputs > 0)) {
    frame.call = std::make_unique<Call>(*frame.info);
    if (!frame.call->capture(function.inputs())) frame.call.reset();
  }
  return nullptr;
}

// ---- after the operator ----------------------------------------------------------------------------------------

struct Outcome {
  Ranges ranges;                           // all that is written
  std::vector<std::vector<Item>> results;  // where each return went; only for calls
  std::vector<Region> written;             // mutable arguments as they are now; only for calls
  std::uint64_t bytes = 0;
  bool opaque = false;
  int device = -1;
};

void add_result(Outcome& outcome, const at::Tensor& tensor, bool fresh, std::vector<Item>* items) {
  Item* item = items != nullptr ? &items->emplace_back() : nullptr;
  const Backing backing = backing_of(tensor);
  if (backing == Backing::kOpaque) outcome.opaque = true;
  if (backing != Backing::kDevice) return;
  outcome.bytes += touched_bytes(tensor);
  outcome.device = tensor.get_device();
  append_ranges(tensor, outcome.ranges, kPieceLimit);
  if (item == nullptr) return;
  item->device = true;
  item->region = Region(tensor);
  if (!fresh) outcome.written.push_back(item->region);
}

Outcome look_at_outputs(const Frame& frame, const std::vector<c10::IValue>& outputs) {
  Outcome outcome;
  const OpInfo& info = *frame.info;
  if (frame.call != nullptr) outcome.results.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size() && i < info.fresh_returns.size(); ++i) {
    const bool fresh = info.fresh_returns[i];
    if (!fresh && !info.returns_cover_mutable) continue;  // seen as mutable arguments, or a plain number
    std::vector<Item>* items = frame.call != nullptr ? &outcome.results[i] : nullptr;
    if (outputs[i].isTensor()) {
      add_result(outcome, outputs[i].toTensor(), fresh, items);
    } else if (outputs[i].isTensorList()) {
      for (const c10::IValue& element : outputs[i].toListRef()) add_result(outcome, element.toTensor(), fresh, items);
    }
  }
  outcome.ranges.append(frame.mutables.begin(), frame.mutables.end());
  if (!info.returns_cover_mutable) outcome.bytes += frame.mutable_bytes;
  return outcome;
}

struct Action {  // what is queued: a call, or ranges that become unknown
  std::unique_ptr<Call> call;
  Ranges unknown;
};

int run_action(void* context) {
  auto* action = static_cast<Action*>(context);
  if (action->call != nullptr) action->call->run();
  for (const Range& range : action->unknown) api().mark_unknown(range.begin, range.bytes);
  return 1;
}

void destroy_action(void* context) { delete static_cast<Action*>(context); }

void queue(std::unique_ptr<Action> action) {
  Action* context = action.release();
  // The arrays must outlive the action itself, which may be gone before the call returns.
  const Ranges reads = context->call != nullptr ? context->call->reads() : Ranges();
  const Ranges writes = context->call != nullptr ? context->call->ranges() : context->unknown;
  api().run_on_ranges(run_action, destroy_action, context, reads.data(), reads.size(), writes.data(), writes.size());
}

std::uint64_t mix(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15ULL;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

// The random operator has just moved the device generator's offset, so seed and offset name this very call, as they do
// on the GPU. The numbers are those of the CPU generator, not of the GPU's Philox.
std::uint64_t random_seed(const Frame& frame, int device) {
  const at::Generator* generator = nullptr;
  for (const CallArgument& argument : frame.call->arguments()) {
    if (argument.kind == CallArgument::Kind::kGenerator && argument.value.isGenerator()) {
      static thread_local at::Generator given;
      given = argument.value.toGenerator();
      generator = &given;
    }
  }
  if (generator == nullptr) {
    generator = &at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  }
  const auto* state = generator->unsafeGetGeneratorImpl();
  const std::uint64_t offset = state->device().is_cuda() ? state->get_offset() : 0;
  return mix(state->current_seed() ^ mix(offset));
}

// D2D copies of equal layout are memcpys: the shim moves their bytes itself, known or not.
bool is_plain_copy(const Frame& frame, const Outcome& outcome) {
  if (!frame.info->is_copy || frame.call == nullptr || outcome.written.size() != 1) return false;
  const CallArgument& source = frame.call->arguments()[1];
  if (source.items.empty() || !source.items[0].device) return false;
  const Region& from = source.items[0].region;
  const Region& to = outcome.written[0];
  return from.dtype == to.dtype && from.sizes == to.sizes && from.strides == to.strides && to.dense();
}

enum class Fate { kNothing, kAlreadyWritten, kExecute, kUnknown };

Fate fate_of(const Frame& frame, const Outcome& outcome) {
  const OpInfo& info = *frame.info;
  if (frame.opaque || outcome.opaque || !info.has_values() || outcome.ranges.empty()) return Fate::kNothing;
  if (info.op_class == OpClass::kAllocation) return Fate::kUnknown;
  if (info.op_class == OpClass::kLeafOnly && frame.inner) return Fate::kNothing;
  if (frame.same_inside) return Fate::kNothing;
  if (info.is_copy && frame.host_inputs > 0) return Fate::kAlreadyWritten;  // host to device: the shim's memcpy
  if (is_plain_copy(frame, outcome)) return Fate::kAlreadyWritten;
  if (frame.host_mutable > 0) return Fate::kNothing;
  // An in-place operator made of others (foreach's slow path): running it once more would apply it twice.
  if (frame.inner) {
    bool reads_what_it_writes = false;
    for (int position : info.mutable_arguments)
      reads_what_it_writes |= !info.write_only[static_cast<std::size_t>(position)];
    if (reads_what_it_writes && overlaps(outcome.ranges, frame.wrote)) return Fate::kNothing;
  }
  if (frame.call != nullptr && outcome.bytes <= kOutputLimitBytes) return Fate::kExecute;
  return Fate::kUnknown;
}

// A custom operator's results that neither its inner operators wrote nor its arguments hold.
void keep_untouched(Ranges& ranges, const Frame& frame) {
  Ranges kept;
  for (const Range& range : ranges) {
    const Ranges one{range};
    const bool is_argument = overlaps(one, frame.arguments) && frame.info->mutable_arguments.empty();
    if (!is_argument && !overlaps(one, frame.wrote)) kept.push_back(range);
  }
  ranges = std::move(kept);
}

void apply(Frame& frame, Outcome& outcome, Frame* parent) {
  if (frame.info->op_class == OpClass::kForeign) keep_untouched(outcome.ranges, frame);
  const Fate fate = fate_of(frame, outcome);
  if (fate == Fate::kNothing) return;
  if (parent != nullptr) parent->wrote.append(outcome.ranges.begin(), outcome.ranges.end());
  if (fate == Fate::kAlreadyWritten) return;
  auto action = std::make_unique<Action>();
  if (fate == Fate::kExecute) {
    const int device = outcome.device >= 0 ? outcome.device : frame.device;
    const std::uint64_t seed = frame.info->random ? random_seed(frame, device) : 0;
    frame.call->finish(std::move(outcome.results), outcome.written, std::move(outcome.ranges), seed);
    action->call = std::move(frame.call);
  } else {
    action->unknown = std::move(outcome.ranges);
  }
  queue(std::move(action));
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  Frames& all = frames();
  if (all.depth == 0) return;
  Frame& frame = all.stack[all.depth - 1];
  Frame* parent = all.depth > 1 ? &all.stack[all.depth - 2] : nullptr;
  const bool values = frame.info->has_values();
  if (values) {
    Outcome outcome = look_at_outputs(frame, function.outputs());
    api().op_end(outcome.bytes);
    apply(frame, outcome, parent);
  } else {
    api().op_end(0);
  }
  if (parent != nullptr) {
    parent->inner |= frame.inner || (values && !frame.opaque);
    parent->same_inside |= parent->info == frame.info && !frame.opaque;
    parent->wrote.append(frame.wrote.begin(), frame.wrote.end());
  }
  frame.call.reset();
  --all.depth;
}

}  // namespace

void install_overrides();

}  // namespace phantora::adaptor

// Starts observing; returns 1, or 0 when the shim is not in this process. A second call does nothing.
extern "C" __attribute__((visibility("default"))) int phantora_adaptor_start() {
  static std::atomic<bool> started{false};
  phantora::adaptor::api().resolve();
  if (!phantora::adaptor::api().complete()) return 0;
  if (started.exchange(true)) return 1;
  phantora::adaptor::install_overrides();
  at::addGlobalCallback(at::RecordFunctionCallback(phantora::adaptor::on_start, phantora::adaptor::on_end)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  return 1;
}
