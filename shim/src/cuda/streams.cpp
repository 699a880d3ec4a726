#include "cuda/streams.hpp"

#include <mutex>
#include <vector>

#include "cuda/copies.hpp"
#include "cuda/memory.hpp"

namespace phantora::cuda {
namespace {

constexpr std::uint32_t kStreams = 65536;  // ordinals are 16 bits
constexpr std::uint32_t kEvents = 1U << 20;

// Tables are zero pages until used. A handle is the address of its entry, so that checking one is arithmetic.
struct Slot {
  Stream stream;
  std::atomic<bool> alive{false};
  std::uint64_t work = 0;            // ops since the start, for the legacy stream's ordering
  std::uint64_t legacy_seen = 0;     // work of the legacy stream that this one is ordered after
  std::uint64_t seen_by_legacy = 0;  // own work that the legacy stream is ordered after
};

struct EventSlot {
  Event event;
  std::atomic<bool> alive{false};
};

Slot stream_table[kStreams];
EventSlot event_table[kEvents];

struct Tables {
  std::mutex mutex;
  std::uint32_t next_stream = 1;
  std::vector<std::uint16_t> free_streams;  // used only when ordinals run out
  std::size_t free_at = 0;
  std::uint32_t next_event = 1;
  std::vector<std::uint32_t> free_events;
  std::atomic<int> blocking_streams{0};
  std::vector<std::uint16_t> blocking;  // alive, not cudaStreamNonBlocking
  std::uint64_t legacy_work[kMaxDevices] = {};
  std::uint64_t next_id = 3;
};

Tables& tables() {
  static Tables* instance = new Tables;
  return *instance;
}

thread_local void* this_thread_stream = nullptr;

Slot* slot_of(void* handle) {
  const auto offset = reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(stream_table);
  if (offset >= sizeof stream_table || offset % sizeof(Slot) != 0) return nullptr;
  Slot* slot = &stream_table[offset / sizeof(Slot)];
  return slot->alive.load(std::memory_order_acquire) ? slot : nullptr;
}

EventSlot* event_slot_of(void* handle) {
  const auto offset = reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(event_table);
  if (offset >= sizeof event_table || offset % sizeof(EventSlot) != 0) return nullptr;
  EventSlot* slot = &event_table[offset / sizeof(EventSlot)];
  return slot->alive.load(std::memory_order_acquire) ? slot : nullptr;
}

// The per-thread default stream is a blocking stream made on first use.
Status real_handle(void*& handle) {
  if (handle != reinterpret_cast<void*>(static_cast<std::uintptr_t>(abi::kPerThreadStream))) return abi::kSuccess;
  if (slot_of(this_thread_stream) == nullptr) {
    if (const Status status = create_stream(this_thread_stream, 0, 0); status != abi::kSuccess) return status;
  }
  handle = this_thread_stream;
  return abi::kSuccess;
}

bool legacy(void* handle) {
  return handle == nullptr || handle == reinterpret_cast<void*>(static_cast<std::uintptr_t>(abi::kLegacyStream));
}

void submit_event(wire::RecordType type, client::CallKind kind, const StreamRef& stream, std::uint32_t event,
                  std::uint32_t generation) {
  wire::Record record{};
  record.type = type;
  record.device = static_cast<std::uint8_t>(stream.node_device);
  record.stream = stream.ordinal;
  record.event = {event, generation};
  client::submit(kind, record);
}

// `after` waits for what is on `before` now.
void order(const StreamRef& before, const StreamRef& after) {
  static std::mutex mutex;
  static void* event = nullptr;
  std::lock_guard lock(mutex);
  if (event == nullptr && create_event(event, abi::kEventDisableTiming) != abi::kSuccess) return;
  Event& e = event_slot_of(event)->event;
  ++e.generation;
  submit_event(wire::RecordType::kEventRecord, client::CallKind::kFree, before, e.id, e.generation);
  submit_event(wire::RecordType::kStreamWait, client::CallKind::kFree, after, e.id, e.generation);
}

// The legacy default stream waits for all blocking streams of its device, and they for it. Nothing to do for programs
// like PyTorch, whose streams are all non-blocking.
void order_with_legacy(void* handle, const StreamRef& stream) {
  Tables& t = tables();
  if (t.blocking_streams.load(std::memory_order_relaxed) == 0) return;
  std::unique_lock lock(t.mutex);
  const int device = stream.node_device;
  if (legacy(handle)) {
    std::vector<StreamRef> before;
    for (const std::uint16_t ordinal : t.blocking) {
      Slot& slot = stream_table[ordinal];
      if (slot.stream.node_device != device || slot.work == slot.seen_by_legacy) continue;
      slot.seen_by_legacy = slot.work;
      before.push_back({device, ordinal});
    }
    ++t.legacy_work[device];
    lock.unlock();
    for (const StreamRef& other : before) order(other, stream);
    return;
  }
  Slot& slot = *slot_of(handle);
  if ((slot.stream.flags & abi::kStreamNonBlocking) != 0) return;
  ++slot.work;
  if (slot.legacy_seen == t.legacy_work[device]) return;
  slot.legacy_seen = t.legacy_work[device];
  lock.unlock();
  order({device, 0}, stream);
}

}  // namespace

bool default_stream(void* handle) {
  return legacy(handle) || handle == reinterpret_cast<void*>(static_cast<std::uintptr_t>(abi::kPerThreadStream));
}

Stream* find_stream(void* handle) {
  Slot* slot = slot_of(handle);
  return slot == nullptr ? nullptr : &slot->stream;
}

Status resolve_stream(void* handle, StreamRef& stream) {
  if (const Status status = real_handle(handle); status != abi::kSuccess) return status;
  if (legacy(handle)) {
    if (const Status status = ready(); status != abi::kSuccess) return status;
    stream = {current_node_device(), 0};
    return abi::kSuccess;
  }
  const Slot* slot = slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  stream = {slot->stream.node_device, slot->stream.ordinal};
  return abi::kSuccess;
}

Status create_stream(void*& handle, unsigned flags, int priority) {
  if (const Status status = ready(); status != abi::kSuccess) return status;
  if ((flags & ~1U) != 0) return abi::kInvalidValue;
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  std::uint32_t ordinal = 0;
  if (t.next_stream < kStreams) {
    ordinal = t.next_stream++;
  } else if (t.free_at < t.free_streams.size()) {
    ordinal = t.free_streams[t.free_at++];
  } else {
    return abi::kOutOfMemory;
  }
  Slot& slot = stream_table[ordinal];
  slot.stream = {current_node_device(),
                 current_ordinal(),
                 static_cast<std::uint16_t>(ordinal),
                 flags,
                 priority < -5 ? -5 : (priority > 0 ? 0 : priority),
                 t.next_id++};
  slot.work = slot.seen_by_legacy = 0;
  slot.legacy_seen = t.legacy_work[slot.stream.node_device];
  if ((flags & abi::kStreamNonBlocking) == 0) {
    t.blocking.push_back(slot.stream.ordinal);
    ++t.blocking_streams;
  }
  slot.alive.store(true, std::memory_order_release);
  handle = &slot;
  return abi::kSuccess;
}

Status destroy_stream(void* handle) {
  Slot* slot = slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  slot->alive.store(false, std::memory_order_release);
  for (auto it = t.blocking.begin(); it != t.blocking.end(); ++it) {
    if (*it != slot->stream.ordinal) continue;
    t.blocking.erase(it);
    --t.blocking_streams;
    break;
  }
  t.free_streams.push_back(slot->stream.ordinal);
  return abi::kSuccess;
}

Status enqueue(void* handle, client::CallKind kind, wire::Record& record) {
  if (const Status status = real_handle(handle); status != abi::kSuccess) return status;
  StreamRef stream;
  if (const Status status = resolve_stream(handle, stream); status != abi::kSuccess) return status;
  order_with_legacy(handle, stream);
  record.device = static_cast<std::uint8_t>(stream.node_device);
  record.stream = stream.ordinal;
  client::submit(kind, record);
  return abi::kSuccess;
}

Status wait_stream(void* handle) {
  if (const Status status = real_handle(handle); status != abi::kSuccess) return status;
  StreamRef stream;
  if (const Status status = resolve_stream(handle, stream); status != abi::kSuccess) return status;
  client::charge(client::CallKind::kSync);
  if (legacy(handle)) order_with_legacy(handle, stream);
  client::wait_stream(stream.node_device, stream.ordinal);
  run_host_functions(stream.node_device, stream.ordinal);
  return abi::kSuccess;
}

Status query_stream(void* handle) {
  if (const Status status = real_handle(handle); status != abi::kSuccess) return status;
  StreamRef stream;
  if (const Status status = resolve_stream(handle, stream); status != abi::kSuccess) return status;
  client::charge(client::CallKind::kQuery);
  if (legacy(handle)) order_with_legacy(handle, stream);
  if (!client::query_stream(stream.node_device, stream.ordinal)) return abi::kNotReady;
  run_host_functions(stream.node_device, stream.ordinal);
  return abi::kSuccess;
}

Status wait_current_device() {
  if (const Status status = ready(); status != abi::kSuccess) return status;
  client::charge(client::CallKind::kSync);
  client::wait_device(current_node_device());
  run_host_functions(current_node_device(), -1);
  return abi::kSuccess;
}

Status create_event(void*& handle, unsigned flags) {
  if (const Status status = ready(); status != abi::kSuccess) return status;
  if ((flags & ~7U) != 0) return abi::kInvalidValue;
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  std::uint32_t id = 0;
  if (!t.free_events.empty()) {
    id = t.free_events.back();
    t.free_events.pop_back();
  } else if (t.next_event < kEvents) {
    id = t.next_event++;
  } else {
    return abi::kOutOfMemory;
  }
  EventSlot& slot = event_table[id];
  // The generation goes on where the last event with this id stopped, so that old completions are never taken for new
  // ones.
  slot.event.id = id;
  slot.event.recorded = false;
  slot.event.flags = flags;
  slot.event.ordinal_device = current_ordinal();
  slot.alive.store(true, std::memory_order_release);
  handle = &slot;
  return abi::kSuccess;
}

Status destroy_event(void* handle) {
  EventSlot* slot = event_slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  slot->alive.store(false, std::memory_order_release);
  t.free_events.push_back(slot->event.id);
  return abi::kSuccess;
}

Status record_event(void* handle, void* stream_handle) {
  EventSlot* slot = event_slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  wire::Record record{};
  record.type = wire::RecordType::kEventRecord;
  const std::uint32_t generation = __atomic_add_fetch(&slot->event.generation, 1, __ATOMIC_RELAXED);
  record.event = {slot->event.id, generation};
  const Status status = enqueue(stream_handle, client::CallKind::kEventRecord, record);
  if (status == abi::kSuccess) {
    slot->event.recorded = true;
    slot->event.stream = {record.device, record.stream};
  }
  return status;
}

Status wait_event_on_stream(void* stream_handle, void* handle) {
  EventSlot* slot = event_slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  if (!slot->event.recorded) {
    StreamRef stream;
    return resolve_stream(stream_handle, stream);
  }
  wire::Record record{};
  record.type = wire::RecordType::kStreamWait;
  record.event = {slot->event.id, __atomic_load_n(&slot->event.generation, __ATOMIC_RELAXED)};
  return enqueue(stream_handle, client::CallKind::kStreamWait, record);
}

Status query_event(void* handle) {
  EventSlot* slot = event_slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  if (!slot->event.recorded) return abi::kSuccess;
  client::charge(client::CallKind::kQuery);
  const std::uint32_t generation = __atomic_load_n(&slot->event.generation, __ATOMIC_RELAXED);
  if (!client::query_event(slot->event.id, generation)) return abi::kNotReady;
  run_host_functions(slot->event.stream.node_device, slot->event.stream.ordinal);
  return abi::kSuccess;
}

Status wait_event(void* handle) {
  EventSlot* slot = event_slot_of(handle);
  if (slot == nullptr) return abi::kInvalidHandle;
  if (!slot->event.recorded) return abi::kSuccess;
  client::charge(client::CallKind::kSync);
  client::wait_event(slot->event.id, __atomic_load_n(&slot->event.generation, __ATOMIC_RELAXED));
  run_host_functions(slot->event.stream.node_device, slot->event.stream.ordinal);
  return abi::kSuccess;
}

Status elapsed_ms(float& ms, void* start, void* end) {
  EventSlot* first = event_slot_of(start);
  EventSlot* last = event_slot_of(end);
  if (first == nullptr || last == nullptr) return abi::kInvalidHandle;
  for (const EventSlot* slot : {first, last}) {
    if ((slot->event.flags & abi::kEventDisableTiming) != 0 || !slot->event.recorded) return abi::kInvalidHandle;
  }
  for (void* handle : {start, end}) {
    if (const Status status = query_event(handle); status != abi::kSuccess) return status;
  }
  const auto from = client::completion_ns(first->event.id, first->event.generation);
  const auto to = client::completion_ns(last->event.id, last->event.generation);
  ms = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(to - from)) / 1e6);
  return abi::kSuccess;
}

}  // namespace phantora::cuda
