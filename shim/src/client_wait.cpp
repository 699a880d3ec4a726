// Waits, queries and sleeps. The tables of resolved times are looked at first; the core is asked for what they do not
// hold.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "client_state.hpp"
#include "libc/jitter.hpp"

namespace phantora::client {
namespace {

using wire::RecordType;
using wire::WaitKind;

constexpr std::uint64_t kSequenceMask = (1ULL << 48) - 1;
constexpr std::uint64_t kFirstLookNs = 50'000;  // helper threads poll in real time, with growing gaps
constexpr std::uint64_t kLongestLookNs = 5'000'000;

struct Resolved {
  std::uint64_t key;
  std::uint64_t completion_ns;
};

// Key and time belong together only if the key is the same before and after.
template <typename Slot>
std::optional<Resolved> read_slot(const Slot& slot) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    const std::uint64_t key = slot.key.load(std::memory_order_acquire);
    const std::uint64_t completion_ns = slot.completion_ns.load(std::memory_order_acquire);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.key.load(std::memory_order_relaxed) == key) return Resolved{key, completion_ns};
  }
  return std::nullopt;
}

enum class Known { kYes, kNotYet, kAskCore };
struct Looked {
  Known known;
  std::uint64_t completion_ns;  // kYes: of what was asked. kNotYet: a lower bound (0 none)
};

struct ShadowEvent {
  std::uint32_t event;
  std::uint32_t generation;
  std::uint16_t stream;
  std::uint8_t device;
  std::uint64_t sequence;
};
constexpr std::uint32_t kShadowEvents = 1024;  // oldest forgotten first; its event then counts as complete in the core
ShadowEvent g_shadows[kShadowEvents];
std::uint32_t g_next_shadow = 0;
std::atomic<bool> g_any_shadow{false};
constinit SpinLock g_shadow_lock;

std::optional<ShadowEvent> find_shadow(std::uint32_t event, std::uint32_t generation) {
  if (!g_any_shadow.load(std::memory_order_acquire)) return std::nullopt;
  SpinGuard guard(g_shadow_lock);
  for (const auto& shadow : g_shadows) {
    if (shadow.event == event && shadow.generation == generation && generation != 0) return shadow;
  }
  return std::nullopt;
}

Looked look_event(std::uint32_t event, std::uint32_t generation) {
  const auto resolved = read_slot(g_state.block->events[event % wire::kEventSlots]);
  if (!resolved) return {Known::kAskCore, 0};
  if (resolved->key == (static_cast<std::uint64_t>(event) << 32 | generation))
    return {Known::kYes, resolved->completion_ns};
  // Another event, or a later record of this one, in the slot: ours may have been there before.
  const bool ours = resolved->key == 0 || (resolved->key >> 32 == event && (resolved->key & 0xffffffffU) < generation);
  return {ours ? Known::kNotYet : Known::kAskCore, 0};
}

std::uint64_t last_sequence(int device, std::uint16_t stream) {
  return stream == 0 ? g_state.default_sequence[device % kMaxDevices] : g_state.sequence[stream];
}

Looked look_stream(int device, std::uint16_t stream) {
  const std::uint64_t last = last_sequence(device, stream);
  if (last == 0) return {Known::kYes, 0};
  if (stream == 0 && (g_state.default_streams_mixed || static_cast<std::uint32_t>(device) != g_state.block->device)) {
    return {Known::kAskCore, 0};
  }
  const auto resolved = read_slot(g_state.block->streams[stream % wire::kStreamSlots]);
  if (!resolved || (resolved->key >> 48 != stream && resolved->key != 0)) return {Known::kAskCore, 0};
  if ((resolved->key & kSequenceMask) >= last) return {Known::kYes, resolved->completion_ns};
  return {Known::kNotYet, resolved->completion_ns};
}

Looked look_device(int device) {
  Looked all{Known::kYes, 0};
  const auto join_with = [&all](const Looked& one) {
    if (one.known != Known::kYes) all.known = one.known;
    all.completion_ns = std::max(all.completion_ns, one.completion_ns);
  };
  join_with(look_stream(device, 0));
  for (std::uint32_t index = 0; index < g_state.used_count; ++index) {
    const std::uint16_t stream = g_state.used_streams[index];
    if (g_state.used_device[stream] == device) join_with(look_stream(device, stream));
  }
  return all;
}

Record make(RecordType type, WaitKind kind, int device, std::uint16_t stream) {
  Record record = {};
  record.type = type;
  record.device = static_cast<std::uint8_t>(device);
  record.stream = stream;
  if (kind == WaitKind::kStream) record.stream_sequence = last_sequence(device, stream);
  record.wait.kind = kind;
  record.wait.peek = t_thread.driving ? 0 : 1;
  return record;
}

// A helper thread never moves H and never holds the core back: it looks again in real time until global time has
// passed.
template <typename Look>
void poll_until_complete(Look look, Record& record) {
  std::uint64_t gap_ns = kFirstLookNs;
  while (true) {
    libc::helper_jitter();
    const Looked looked = look();
    const std::uint64_t global = g_state.header->global_ns.load(std::memory_order_acquire);
    if (looked.known == Known::kYes && looked.completion_ns <= global) return;
    if (looked.known == Known::kAskCore) {
      Record peek = record;
      peek.type = RecordType::kQuery;
      if (ask(peek).value != 0) return;
    }
    check_ending();
    real_sleep_ns(gap_ns);
    gap_ns = std::min(gap_ns * 2, kLongestLookNs);
  }
}

template <typename Look>
void wait_for(Look look, Record&& record) {
  if (!t_thread.driving) {
    poll_until_complete(look, record);
    t_thread.behind = 0;
    t_thread.seen = g_state.header->global_ns.load(std::memory_order_relaxed);
    return;
  }
  t_thread.reads = 0;
  flush_records();
  const Looked looked = look();
  if (looked.known == Known::kYes) {
    move_clock_to(looked.completion_ns);
  } else {
    move_clock_to(ask(record).resume_ns);
  }
  drain_values();
}

template <typename Look>
bool query(Look look, Record&& record) {
  libc::helper_jitter();
  const Looked looked = look();
  if (!t_thread.driving) {
    if (looked.known == Known::kYes) {
      return looked.completion_ns <= g_state.header->global_ns.load(std::memory_order_acquire);
    }
    if (looked.known == Known::kNotYet) return false;
    return ask(record).value != 0;
  }
  t_thread.reads = 0;
  const std::uint64_t now = g_state.clock.load(std::memory_order_relaxed);
  bool done = false;
  if (looked.known == Known::kYes) {
    done = looked.completion_ns <= now;
  } else if (looked.known == Known::kNotYet && looked.completion_ns > now) {
    done = false;  // something earlier on the stream ends later than now
  } else {
    const Answer answer = ask(record);
    move_clock_to(answer.resume_ns);
    done = answer.value != 0;
  }
  if (done) drain_values();
  return done;
}

}  // namespace

void shadow_event(const Record& record) {
  SpinGuard guard(g_shadow_lock);
  g_shadows[g_next_shadow++ % kShadowEvents] = {record.event.event, record.event.generation, record.stream,
                                                record.device, last_sequence(record.device, record.stream)};
  g_any_shadow.store(true, std::memory_order_release);
}

void wait_stream(int device, std::uint16_t stream) {
  if (!is_actor()) return drain_values();
  wait_for([=] { return look_stream(device, stream); }, make(RecordType::kWait, WaitKind::kStream, device, stream));
}

void wait_event(std::uint32_t event, std::uint32_t generation) {
  if (!is_actor() || generation == 0) return drain_values();
  if (const auto shadow = find_shadow(event, generation)) return wait_stream(shadow->device, shadow->stream);
  Record record = make(RecordType::kWait, WaitKind::kEvent, 0, 0);
  record.wait.event = event;
  record.wait.generation = generation;
  wait_for([=] { return look_event(event, generation); }, std::move(record));
}

void wait_device(int device) {
  if (!is_actor()) return drain_values();
  wait_for([=] { return look_device(device); }, make(RecordType::kWait, WaitKind::kDevice, device, 0));
}

bool query_stream(int device, std::uint16_t stream) {
  if (!is_actor()) return true;
  return query([=] { return look_stream(device, stream); },
               make(RecordType::kQuery, WaitKind::kStream, device, stream));
}

bool query_event(std::uint32_t event, std::uint32_t generation) {
  if (!is_actor() || generation == 0) return true;
  if (const auto shadow = find_shadow(event, generation)) {
    const std::uint64_t now = t_thread.driving ? g_state.clock.load() : g_state.header->global_ns.load();
    const auto resolved = read_slot(g_state.block->streams[shadow->stream % wire::kStreamSlots]);
    const bool reached = resolved && resolved->key >> 48 == shadow->stream &&
                         (resolved->key & kSequenceMask) >= shadow->sequence && resolved->completion_ns <= now;
    return shadow->sequence == 0 || reached || query_stream(shadow->device, shadow->stream);
  }
  Record record = make(RecordType::kQuery, WaitKind::kEvent, 0, 0);
  record.wait.event = event;
  record.wait.generation = generation;
  return query([=] { return look_event(event, generation); }, std::move(record));
}

std::uint64_t completion_ns(std::uint32_t event, std::uint32_t generation) {
  if (!is_actor() || generation == 0) return 0;
  if (t_thread.driving) flush_records();
  Looked looked = look_event(event, generation);
  if (looked.known == Known::kYes) return looked.completion_ns;
  Record record = make(RecordType::kWait, WaitKind::kEvent, 0, 0);
  record.wait.event = event;
  record.wait.generation = generation;
  if (!t_thread.driving) {
    poll_until_complete([=] { return look_event(event, generation); }, record);
    looked = look_event(event, generation);
    return looked.completion_ns;
  }
  const Answer answer = ask(record);
  // The core counts this thread as blocked until then, so H follows as after any wait.
  move_clock_to(answer.resume_ns);
  looked = look_event(event, generation);
  return looked.known == Known::kYes ? looked.completion_ns : answer.value;
}

std::int64_t elapsed_ns(std::uint32_t start, std::uint32_t start_generation, std::uint32_t end,
                        std::uint32_t end_generation) {
  if (!is_actor() || start_generation == 0 || end_generation == 0) return 0;
  if (t_thread.driving) flush_records();
  const Looked first = look_event(start, start_generation);
  const Looked second = look_event(end, end_generation);
  if (first.known == Known::kYes && second.known == Known::kYes) {
    return static_cast<std::int64_t>(second.completion_ns - first.completion_ns);
  }
  Record record = make(RecordType::kElapsed, WaitKind::kEvent, 0, 0);
  record.wait.event = start;
  record.wait.generation = start_generation;
  record.wait.event_end = end;
  record.wait.generation_end = end_generation;
  Answer answer = ask(record);
  while (!answer.asked) {
    real_sleep_ns(kFirstLookNs);
    answer = ask(record);
  }
  if (t_thread.driving) move_clock_to(answer.resume_ns);
  return static_cast<std::int64_t>(answer.value);
}

void sleep_until(std::uint64_t virtual_ns) {
  if (current_mode() == Mode::kDetached) return move_clock_to(virtual_ns);
  if (!is_driver() || virtual_ns <= g_state.clock.load(std::memory_order_relaxed)) return;
  Record record = {};
  record.type = RecordType::kSleep;
  record.sleep.until_ns = virtual_ns;
  move_clock_to(ask(record).resume_ns);
}

}  // namespace phantora::client
