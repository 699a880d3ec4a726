#include "cuda/state.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/memory.hpp"

namespace phantora::cuda {
namespace {

struct Device {
  std::atomic<Context*> primary{nullptr};  // never deleted
  unsigned flags = 0;
};

struct State {
  std::mutex mutex;
  std::atomic<bool> ready{false};
  std::atomic<bool> forked_after_use{false};
  std::atomic<bool> used{false};  // a context exists or existed
  int count = 0;
  std::array<int, kMaxDevices> node_device{};
  std::array<Device, kMaxDevices> devices;         // by ordinal
  std::vector<std::unique_ptr<Context>> contexts;  // of cuCtxCreate
  std::uint64_t next_context = 1;
  bool peers[kMaxDevices][kMaxDevices] = {};
};

State& state() {
  static State* instance = new State;  // never destroyed: other threads may still call during exit
  return *instance;
}

thread_local int this_ordinal = 0;
thread_local std::vector<Context*>* context_stack = nullptr;
thread_local Context* this_context = nullptr;

// A child of a process that has used CUDA cannot use it, as with the real driver; a child of one that has not starts
// afresh and reads CUDA_VISIBLE_DEVICES anew (the launcher forks ranks from a process that never touches CUDA).
void after_fork_in_child() {
  State& s = state();
  new (&s.mutex) std::mutex;
  if (s.used.load()) s.forked_after_use.store(true);
  s.ready.store(false);
  forget_memory_in_child();
}

struct RegisterFork {
  RegisterFork() { pthread_atfork(nullptr, nullptr, &after_fork_in_child); }
} register_fork;

bool parse_index(const std::string& text, int limit, int& index) {
  if (text.rfind("GPU-", 0) == 0) {
    for (int device = 0; device < limit; ++device) {
      abi::Uuid uuid;
      char written[48];
      std::memset(&uuid, 0, sizeof uuid);
      node_device_uuid(uuid, device);
      const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
      std::snprintf(written, sizeof written, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                    b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
                    b[15]);
      if (std::string_view(written).substr(0, text.size()) == text) {
        index = device;
        return true;
      }
    }
    return false;
  }
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < 0 || value >= limit) return false;
  index = static_cast<int>(value);
  return true;
}

// The first entry that names no device ends the list, as CUDA documents it.
void read_visible(State& s) {
  const int limit = std::min(client::node_devices(), kMaxDevices);
  s.count = 0;
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  if (variable == nullptr) {
    for (int device = 0; device < limit; ++device) s.node_device[s.count++] = device;
    return;
  }
  std::string text = variable;
  for (std::size_t start = 0; start <= text.size();) {
    std::size_t comma = text.find(',', start);
    if (comma == std::string::npos) comma = text.size();
    std::string entry = text.substr(start, comma - start);
    entry.erase(0, entry.find_first_not_of(" \t"));
    entry.erase(entry.find_last_not_of(" \t") + 1);
    int index = 0;
    if (!parse_index(entry, limit, index)) break;
    for (int i = 0; i < s.count; ++i) {
      if (s.node_device[i] == index) {  // a device named twice: CUDA then shows none
        s.count = 0;
        return;
      }
    }
    s.node_device[s.count++] = index;
    start = comma + 1;
  }
}

}  // namespace

Status initialise() {
  State& s = state();
  if (s.forked_after_use.load(std::memory_order_relaxed)) return abi::kInitializationError;
  if (!s.ready.load(std::memory_order_acquire)) {
    if (client::header() == nullptr) return abi::kNoDevice;
    std::lock_guard lock(s.mutex);
    if (!s.ready.load(std::memory_order_relaxed)) {
      read_visible(s);
      s.ready.store(true, std::memory_order_release);
    }
  }
  return s.count == 0 ? abi::kNoDevice : abi::kSuccess;
}

bool initialised() { return state().ready.load(std::memory_order_acquire); }
int visible_count() { return initialise() == abi::kSuccess ? state().count : 0; }
int node_device_of(int ordinal) { return state().node_device[static_cast<std::size_t>(ordinal)]; }

int ordinal_of(int node_device) {
  State& s = state();
  for (int i = 0; i < s.count; ++i) {
    if (s.node_device[static_cast<std::size_t>(i)] == node_device) return i;
  }
  return -1;
}

int current_ordinal() { return this_context != nullptr ? this_context->ordinal : this_ordinal; }
int current_node_device() { return node_device_of(current_ordinal()); }

Status set_current(int ordinal, bool activate) {
  if (const Status status = initialise(); status != abi::kSuccess) return status;
  if (ordinal < 0 || ordinal >= state().count) return abi::kInvalidDevice;
  Status status = abi::kSuccess;
  Context* context = primary_active(ordinal) ? primary_context(ordinal, status) : nullptr;
  if (activate && context == nullptr) context = primary_context(ordinal, status);
  if (status != abi::kSuccess) return status;
  this_ordinal = ordinal;
  set_current_context(context);
  return abi::kSuccess;
}

Context* primary_context(int ordinal, Status& status) {
  State& s = state();
  Device& device = s.devices[static_cast<std::size_t>(ordinal)];
  status = abi::kSuccess;
  if (Context* made = device.primary.load(std::memory_order_acquire); made != nullptr) return made;
  std::lock_guard lock(s.mutex);
  if (device.primary.load() == nullptr) {
    const int node_device = s.node_device[static_cast<std::size_t>(ordinal)];
    if (!charge_memory(node_device, gpu().context_bytes, wire::MemoryKind::kContext, gpu().context_bytes)) {
      status = abi::kOutOfMemory;
      return nullptr;
    }
    s.used.store(true);
    device.primary.store(new Context{ordinal, node_device, true, s.next_context++, device.flags},
                         std::memory_order_release);
  }
  return device.primary.load();
}

bool primary_active(int ordinal) {
  return state().devices[static_cast<std::size_t>(ordinal)].primary.load(std::memory_order_acquire) != nullptr;
}

unsigned primary_flags(int ordinal) { return state().devices[static_cast<std::size_t>(ordinal)].flags; }
void set_primary_flags(int ordinal, unsigned flags) {
  state().devices[static_cast<std::size_t>(ordinal)].flags = flags;
}

Context* current_context() { return this_context; }

void set_current_context(Context* context) {
  this_context = context;
  if (context != nullptr) this_ordinal = context->ordinal;
}

void push_context(Context* context) {
  if (context_stack == nullptr) context_stack = new std::vector<Context*>;
  context_stack->push_back(this_context);
  set_current_context(context);
}

Context* pop_context() {
  Context* top = this_context;
  Context* below = nullptr;
  if (context_stack != nullptr && !context_stack->empty()) {
    below = context_stack->back();
    context_stack->pop_back();
  }
  set_current_context(below);
  return top;
}

Context* new_context(int ordinal, unsigned flags, Status& status) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const int node_device = s.node_device[static_cast<std::size_t>(ordinal)];
  if (!charge_memory(node_device, gpu().context_bytes, wire::MemoryKind::kContext, gpu().context_bytes)) {
    status = abi::kOutOfMemory;
    return nullptr;
  }
  s.used.store(true);
  auto context = std::make_unique<Context>();
  *context = {ordinal, node_device, false, s.next_context++, flags};
  s.contexts.push_back(std::move(context));
  status = abi::kSuccess;
  return s.contexts.back().get();
}

bool valid_context(const Context* context) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  for (int i = 0; i < s.count; ++i) {
    if (s.devices[static_cast<std::size_t>(i)].primary.load() == context) return context != nullptr;
  }
  for (const auto& other : s.contexts) {
    if (other.get() == context) return true;
  }
  return false;
}

void destroy_context(Context* context) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  for (auto it = s.contexts.begin(); it != s.contexts.end(); ++it) {
    if (it->get() != context) continue;
    uncharge_memory(context->node_device, gpu().context_bytes, wire::MemoryKind::kContext);
    if (this_context == context) this_context = nullptr;
    s.contexts.erase(it);
    return;
  }
}

Status ready() {
  if (this_context != nullptr && !state().forked_after_use.load(std::memory_order_relaxed)) return abi::kSuccess;
  if (const Status status = initialise(); status != abi::kSuccess) return status;
  return set_current(this_ordinal, true);
}

Status enable_peer(int from_ordinal, int to_ordinal) {
  State& s = state();
  if (to_ordinal < 0 || to_ordinal >= s.count || to_ordinal == from_ordinal) return abi::kInvalidDevice;
  std::lock_guard lock(s.mutex);
  bool& enabled = s.peers[from_ordinal][to_ordinal];
  if (enabled) return abi::kPeerAlreadyEnabled;
  enabled = true;
  return abi::kSuccess;
}

Status disable_peer(int from_ordinal, int to_ordinal) {
  State& s = state();
  if (to_ordinal < 0 || to_ordinal >= s.count) return abi::kInvalidDevice;
  std::lock_guard lock(s.mutex);
  bool& enabled = s.peers[from_ordinal][to_ordinal];
  if (!enabled) return abi::kPeerNotEnabled;
  enabled = false;
  return abi::kSuccess;
}

// Outside a run there is no GPU: all zeros, so that nothing can be computed from it by accident.
const wire::GpuProperties& gpu() {
  static const wire::GpuProperties kNone{};
  const wire::RunHeader* header = client::header();
  return header == nullptr ? kNone : header->gpu;
}

// Without records: the process's end says it all, and nobody is left to be told.
void release_all() {
  State& s = state();
  if (s.forked_after_use.load() || !s.used.exchange(false)) return;
  release_memory();
  const auto give_back = [](int node_device) {
    wire::DeviceState& device = client::device_state(node_device);
    device.used_bytes.fetch_sub(gpu().context_bytes);
    device.other_bytes.fetch_sub(gpu().context_bytes);
    device.context_bytes.fetch_sub(gpu().context_bytes);
  };
  for (Device& device : s.devices) {
    if (const Context* context = device.primary.load(); context != nullptr) give_back(context->node_device);
  }
  for (const auto& context : s.contexts) give_back(context->node_device);
}

}  // namespace phantora::cuda
