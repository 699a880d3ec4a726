// The ring: records, their publication, op scopes and the doorbell.
//
// Order of publication (rule 7): the record, then `head`, then H. The core reads H, then drains. H in shared memory may
// lag behind the thread's H, never lead it past a record that is not published.
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>

#include "client_state.hpp"
#include "raw_syscall.hpp"

namespace phantora::client {
namespace {

constexpr std::int64_t kLookAgainNs = 1'000'000'000;
constexpr std::int64_t kHeldLookNs = 20'000;
constexpr int kHeldLooks = 1'000;
constexpr std::size_t kHolders = 16;

// Threads whose op scopes hold records back, and from which record on. What others publish stops there: whether another
// thread flushes before or after an op ends is a matter of real time. A thread that finds no place holds nothing back.
struct Holder {
  const Thread* thread;
  std::uint64_t first;
};
constinit Holder g_holders[kHolders] = {};
constinit std::size_t g_holder_count = 0;

Holder* own_holder_locked() {
  if (g_holder_count == 0) return nullptr;
  for (auto& holder : g_holders) {
    if (holder.thread == &t_thread) return &holder;
  }
  return nullptr;
}

bool hold_locked(std::uint64_t index) {
  Holder* own = own_holder_locked();
  if (own == nullptr) {
    for (auto& holder : g_holders) {
      if (holder.thread == nullptr) own = &holder;
    }
    if (own == nullptr) return false;
    *own = {&t_thread, index};
    ++g_holder_count;
  } else if (own->first < g_state.published_head) {
    own->first = index;  // a wait inside the op has published what was held until then
  }
  return true;
}

void release_locked() {
  Holder* own = own_holder_locked();
  if (own == nullptr) return;
  own->thread = nullptr;
  --g_holder_count;
}

// First record that another thread holds back; `head` when none does.
std::uint64_t limit_locked() {
  std::uint64_t limit = g_state.head;
  if (g_holder_count == 0) return limit;
  for (const auto& holder : g_holders) {
    const bool other = holder.thread != nullptr && holder.thread != &t_thread;
    if (other && holder.first >= g_state.published_head) limit = std::min(limit, holder.first);
  }
  return limit;
}

// Publishes the records before `end`. The check is made here, because op scopes fill fields in late.
void publish_locked(std::uint64_t end) {
  auto& state = g_state;
  for (std::uint64_t index = state.published_head; index < end; ++index) {
    Record& record = state.ring[index % state.slots];
    record.check = wire::record_check(record);
  }
  state.published_head = std::max(state.published_head, end);
  state.block->head.store(state.published_head, std::memory_order_release);
  const std::uint64_t clock_ns = state.published_head < state.head
                                     ? state.ring[state.published_head % state.slots].issue_ns
                                     : state.clock.load(std::memory_order_relaxed);
  state.block->host_ns.store(clock_ns, std::memory_order_release);
}

// Before the calling thread waits: the core must see what it has issued. Another thread that holds back earlier records
// is inside an op and mostly ends it at once; one that in turn waits for this thread does not.
void publish_own_locked() {
  auto& state = g_state;
  for (int look = 0; state.published_head < t_thread.last; ++look) {
    const std::uint64_t limit = limit_locked();
    if (limit >= t_thread.last || look == kHeldLooks) return publish_locked(look == kHeldLooks ? state.head : limit);
    state.lock.unlock();
    real_sleep_ns(kHeldLookNs);
    state.lock.lock();
  }
}

// Waits until a slot is free. Lets go of the lock while it does.
void wait_for_space() {
  auto& state = g_state;
  while (true) {
    state.tail = state.block->tail.load(std::memory_order_acquire);
    if (state.head - state.tail < state.slots) return;
    // What op scopes hold back is a quarter at most, so the core has records to drain without it. Publishing it here
    // would make its output bytes depend on how fast the core is.
    state.lock.unlock();
    const std::uint32_t before = state.block->space_futex.load();
    state.block->producer_waits.store(1);
    ring_doorbell();
    // The core may have drained before it could see that somebody waits.
    if (state.block->head.load() - state.block->tail.load() >= state.slots) {
      futex_wait(state.block->space_futex, before, kLookAgainNs, true);
    }
    state.block->producer_waits.store(0);
    check_ending();
    state.lock.lock();
  }
}

bool on_stream(wire::RecordType type) {
  return type >= wire::RecordType::kKernel && type <= wire::RecordType::kCollective;
}

void count_on_stream_locked(Record& record) {
  auto& state = g_state;
  if (record.stream == 0) {
    record.stream_sequence = ++state.default_sequence[record.device % kMaxDevices];
    if (record.device != state.block->device) state.default_streams_mixed = true;
    return;
  }
  if (!state.stream_used[record.stream]) {
    state.stream_used[record.stream] = true;
    state.used_device[record.stream] = record.device;
    state.used_streams[state.used_count++] = record.stream;
  }
  record.stream_sequence = ++state.sequence[record.stream];
}

void append_locked(CallKind kind, Record& record) {
  auto& state = g_state;
  if (state.head - state.tail >= state.slots) wait_for_space();
  record.index = state.head;
  const std::uint64_t now = state.clock.load(std::memory_order_relaxed);
  record.issue_ns = now;
  if (on_stream(record.type)) count_on_stream_locked(record);
  state.ring[state.head % state.slots] = record;
  t_thread.last = ++state.head;
  state.clock.store(now + state.header->host_cost_ns[static_cast<std::size_t>(kind)], std::memory_order_relaxed);
}

// The innermost op names the kernel; its output bytes come when it ends.
bool name_by_scope(Record& record) {
  auto& thread = t_thread;
  if (thread.depth == 0 || thread.depth > kMaxScopes) return false;
  Scope& scope = thread.scopes[thread.depth - 1];
  if (record.type == wire::RecordType::kGemm) {
    if (record.gemm.op == 0) record.gemm.op = scope.name;
    return false;
  }
  if (record.type != wire::RecordType::kKernel || record.kernel.op != 0) return false;
  record.kernel.op = scope.name;
  record.kernel.launch_in_op = scope.launches++;
  record.kernel.op_input_bytes = scope.input_bytes;
  ++scope.pending;
  ++thread.pending;
  return true;
}

// Torch names the thread that copies a DataLoader's batches into pinned memory.
bool is_pinning_thread() {
  auto& thread = t_thread;
  if (thread.pins == 0) {
    char name[16] = {};
    raw_syscall(SYS_prctl, PR_GET_NAME, name);
    thread.pins = std::strncmp(name, "pt_data_pin", 11) == 0 ? 2 : 1;
  }
  return thread.pins == 2;
}

// A core that sleeps is woken by blocking threads, and here when it would let the ring run full.
void wake_when_half_full() {
  auto& state = g_state;
  if ((state.published_head & 63) != 0 || state.header->core_asleep.load(std::memory_order_relaxed) == 0) return;
  if (state.published_head - state.block->tail.load(std::memory_order_relaxed) >= state.slots / 2) ring_doorbell();
}

}  // namespace

void ring_doorbell() {
  auto* header = g_state.header;
  header->doorbell.fetch_add(1);
  if (header->core_asleep.load() != 0) futex_wake(header->doorbell, 1, true);
}

void submit(CallKind kind, Record& record) {
  if (!is_driver()) {
    if (!is_virtual()) return;
    // A helper thread that only allocates (a context, pinned memory) does not start to drive H: what it does when is up
    // to real time. The account in shared memory has it; the next record of a driving thread shows the sum.
    if (record.type == wire::RecordType::kMemory) return;
    if (record.type == wire::RecordType::kEventRecord && is_actor() && is_pinning_thread()) return shadow_event(record);
    ensure_driving();
  }
  // Clean-up that runs after the end was told is not part of the run.
  if (g_state.exited.load(std::memory_order_relaxed) && record.type != wire::RecordType::kExit) return;
  t_thread.reads = 0;
  const bool held = name_by_scope(record);
  SpinGuard guard(g_state.lock);
  append_locked(kind, record);
  const bool many = g_state.head - g_state.published_head >= g_state.slots / 4;
  const bool holds = held && hold_locked(g_state.head - 1);
  if (many) {
    publish_locked(g_state.head);
    wake_when_half_full();
  } else if (!holds && t_thread.pending == 0) {
    publish_locked(limit_locked());
    wake_when_half_full();
  }
}

void flush_records() {
  if (!is_actor()) return;
  SpinGuard guard(g_state.lock);
  publish_own_locked();
}

void stop_holding(bool all) {
  SpinGuard guard(g_state.lock);
  if (!all) return release_locked();
  for (auto& holder : g_holders) holder.thread = nullptr;
  g_holder_count = 0;
}

void op_begin(const char* name, std::uint64_t input_bytes) {
  if (!is_virtual()) return;
  charge(CallKind::kOp);
  auto& thread = t_thread;
  if (thread.depth++ >= kMaxScopes) return;
  thread.reads = 0;
  Scope& scope = thread.scopes[thread.depth - 1];
  scope = Scope{wire::name_hash(name), input_bytes, g_state.head, 0, 0};
  // Before the thread's first kernel too, which may be this op's: what a kernel costs depends on its op's name.
  if (is_actor()) intern(name);
}

void op_end(std::uint64_t output_bytes) {
  auto& thread = t_thread;
  if (!is_virtual() || thread.depth == 0) return;
  if (thread.depth-- > kMaxScopes) return;
  const Scope& scope = thread.scopes[thread.depth];
  if (scope.pending == 0) return;
  thread.pending -= scope.pending;
  if (!is_actor()) return;
  SpinGuard guard(g_state.lock);
  auto& state = g_state;
  // Those a wait or a full ring published early keep 0: unknown.
  for (std::uint64_t index = std::max(scope.first, state.published_head); index < state.head; ++index) {
    Record& record = state.ring[index % state.slots];
    if (record.type == wire::RecordType::kKernel && record.kernel.op == scope.name &&
        record.kernel.op_output_bytes == 0) {
      record.kernel.op_output_bytes = output_bytes;
    }
  }
  if (thread.pending != 0) return;
  release_locked();
  if (state.head != state.published_head) {
    publish_locked(limit_locked());
    wake_when_half_full();
  }
}

namespace {

bool is_peek(const Record& record) { return record.type != wire::RecordType::kSleep && record.wait.peek != 0; }

}  // namespace

Answer ask(Record& record) {
  auto& state = g_state;
  t_thread.reads = 0;
  if (state.exited.load(std::memory_order_relaxed)) return {wire::Status::kOk, state.clock.load(), 1};
  // A free slot: there are more than threads that ever wait at once; yields when not.
  std::uint32_t slot = 0;
  while (true) {
    std::uint32_t bits = state.slot_bits.load();
    slot = static_cast<std::uint32_t>(__builtin_ctz(~bits | (bits == ~0U ? 1U : 0U)));
    if (bits != ~0U && state.slot_bits.compare_exchange_weak(bits, bits | 1U << slot)) break;
    if (bits == ~0U) real_sleep_ns(50'000);
  }
  auto& wait = state.block->wait[slot];
  wait.state.store(1);
  record.wait.slot = slot;  // the first field of WaitOp and of SleepOp
  bool asked = true;
  {
    SpinGuard guard(state.lock);
    asked = state.head == state.published_head || !is_peek(record);
    if (asked) {
      append_locked(CallKind::kFree, record);
      publish_own_locked();
    }
  }
  if (!asked) {
    wait.state.store(0);
    state.slot_bits.fetch_and(~(1U << slot));
    return {wire::Status::kOk, 0, 0, false};
  }
  ring_doorbell();
  while (wait.state.load(std::memory_order_acquire) != 2) {
    futex_wait(wait.state, 1, kLookAgainNs, true);
    if (wait.state.load(std::memory_order_acquire) != 2) check_ending();
  }
  const Answer answer{static_cast<wire::Status>(wait.status), wait.resume_ns, wait.value};
  wait.state.store(0);
  state.slot_bits.fetch_and(~(1U << slot));
  if (answer.status == wire::Status::kEnding) end_process(kEndingStatus);
  return answer;
}

}  // namespace phantora::client
