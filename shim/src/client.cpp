// Modes, the shared segment, attaching, and the clock of the calling thread.
#include "client.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client_state.hpp"
#include "libc/real.hpp"
#include "message.hpp"
#include "raw_syscall.hpp"

#ifndef PHANTORA_BUILD_ID
#define PHANTORA_BUILD_ID "development"
#endif

namespace phantora::cuda {
__attribute__((weak)) void release_all();  // absent where only the host half of the shim is built
}

namespace phantora::client {

constinit State g_state;
constinit thread_local Thread t_thread = {};

namespace {

wire::DeviceState g_null_devices[kMaxDevices];

template <typename Type>
Type* at_offset(std::uint64_t offset) {
  return reinterpret_cast<Type*>(reinterpret_cast<char*>(g_state.header) + offset);
}

void fail_environment(const char* what, const char* found) {
  char line[512];
  std::snprintf(line, sizeof line, "%s (found: %s)", what, found);
  complain(line);
  end_process(3);
}

// Publishes H unless records are held back: H must never be ahead of a record the core cannot see yet.
void publish_clock_locked(std::uint64_t clock_ns) {
  g_state.clock.store(clock_ns, std::memory_order_relaxed);
  if (g_state.block != nullptr && g_state.head == g_state.published_head) {
    g_state.block->host_ns.store(clock_ns, std::memory_order_release);
  }
}

void take_block(std::uint32_t actor, int rank, std::uint64_t clock_ns) {
  auto& state = g_state;
  auto& block = actor_block(actor);
  state.actor = actor;
  state.rank = rank;
  state.slots = state.header->ring_slots;
  state.ring = reinterpret_cast<Record*>(reinterpret_cast<char*>(&block) + wire::record_offset);
  state.head = state.published_head = block.head.load(std::memory_order_acquire);
  state.tail = block.tail.load(std::memory_order_acquire);
  state.clock.store(clock_ns, std::memory_order_relaxed);
  state.slot_bits.store(0);
  state.exited.store(false);
  block.timed_wait_ns.store(wire::kUnresolved);
  block.next_timer_ns.store(wire::kUnresolved);
  block.outside.store(0);
  block.host_ns.store(clock_ns, std::memory_order_release);
  block.pid.store(static_cast<std::uint32_t>(state.pid));
  state.block = &block;
  block.state.store(static_cast<std::uint32_t>(wire::ActorState::kLive), std::memory_order_release);
  state.mode.store(static_cast<int>(Mode::kActor), std::memory_order_release);
}

// A detached child issues GPU work: it goes on as a further actor of its rank (rule 13).
void attach_child() {
  static constinit SpinLock attaching;  // not the ring's lock: the request below moves the clock
  SpinGuard guard(attaching);
  if (!is_virtual() || is_actor()) return;
  Body body;
  body.u32(static_cast<std::uint32_t>(std::max(g_state.rank, 0))).u32(static_cast<std::uint32_t>(g_state.pid));
  std::vector<std::byte> reply;
  const auto before = g_state.clock.load();
  const auto status = request(wire::MessageType::kAttachChild, body.span(), reply);
  Reader reader(reply);
  const std::uint32_t actor = reader.u32();
  if (status != wire::Status::kOk || !reader.ok() || actor >= g_state.header->actor_count) {
    complain("no further actor is free for a child process that uses the GPU; raise extra_actors");
    end_process(1);
  }
  // The reply's resume time is already joined into the clock where it is later.
  take_block(actor, g_state.rank, std::max(before, g_state.clock.load()));
}

}  // namespace

wire::ActorBlock& actor_block(std::uint32_t actor) {
  return *at_offset<wire::ActorBlock>(g_state.header->actor_offset + actor * g_state.header->actor_stride);
}

std::uint64_t mix_identity(std::uint64_t parent, std::uint64_t ordinal) {
  std::uint64_t value = parent + (ordinal + 1) * 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

bool map_segment(const char* path) {
  if (g_state.header != nullptr && current_mode() != Mode::kNull) return true;
  const int fd = static_cast<int>(raw_syscall(SYS_open, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) {
    errno = -fd;
    return false;
  }
  // The size is in the header, so that is looked at first.
  void* first = mmap(nullptr, sizeof(wire::RunHeader), PROT_READ, MAP_SHARED, fd, 0);
  if (first == MAP_FAILED) {
    raw_syscall(SYS_close, fd);
    return false;
  }
  const auto* header = static_cast<const wire::RunHeader*>(first);
  const bool right = header->magic == wire::kMagic && header->version == wire::kVersion &&
                     header->header_bytes == sizeof(wire::RunHeader);
  char build_id[sizeof header->build_id];
  std::memcpy(build_id, header->build_id, sizeof build_id);
  build_id[sizeof build_id - 1] = '\0';
  const std::uint64_t total = header->total_bytes;
  munmap(first, sizeof(wire::RunHeader));
  if (!right || std::strcmp(build_id, PHANTORA_BUILD_ID) != 0) {
    raw_syscall(SYS_close, fd);
    fail_environment(
        "the simulator core and the preloaded library are of different builds; run `make native` "
        "(wanted: " PHANTORA_BUILD_ID ")",
        right ? build_id : "another format");
  }
  void* base = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  raw_syscall(SYS_close, fd);
  if (base == MAP_FAILED) {
    errno = error;
    return false;
  }
  std::strncpy(g_state.segment_path, path, sizeof g_state.segment_path - 1);
  g_state.header = static_cast<wire::RunHeader*>(base);
  return true;
}

Mode mode() { return current_mode(); }
bool null_mode() { return current_mode() == Mode::kNull; }

const wire::RunHeader* header() {
  if (g_state.header == nullptr && current_mode() == Mode::kNull) fill_null_header();
  return g_state.header;
}

int world_rank() {
  const Mode now = current_mode();
  return now == Mode::kActor || now == Mode::kNull ? g_state.rank : -1;
}

int node_devices() {
  const auto* run = header();
  if (run == nullptr) return 0;
  const std::uint32_t per_node = std::max(1U, run->gpus_per_node);
  const std::uint32_t first = static_cast<std::uint32_t>(std::max(g_state.rank, 0)) / per_node * per_node;
  const std::uint32_t left = run->world_size > first ? run->world_size - first : 1;
  return static_cast<int>(std::min({per_node, left, static_cast<std::uint32_t>(kMaxDevices)}));
}

wire::DeviceState& device_state(int node_device) {
  const auto* run = header();
  if (run == nullptr || run->device_offset == 0) return g_null_devices[node_device % kMaxDevices];
  const std::uint32_t per_node = std::max(1U, run->gpus_per_node);
  const std::uint32_t first = static_cast<std::uint32_t>(std::max(g_state.rank, 0)) / per_node * per_node;
  return at_offset<wire::DeviceState>(run->device_offset)[first + static_cast<std::uint32_t>(node_device)];
}

void attach(int rank) {
  const Mode now = current_mode();
  if (now == Mode::kActor) return;
  g_state.pid = getpid();
  if (now == Mode::kNull) {
    g_state.rank = rank;
    fill_null_header();
    t_thread.driving = true;
    return;
  }
  const char* path = std::getenv("PHANTORA_SEGMENT");
  if (path == nullptr || !map_segment(path)) {
    fail_environment("cannot join the run: PHANTORA_SEGMENT must name the core's segment",
                     path == nullptr ? "not set" : std::strerror(errno));
  }
  if (rank < 0 || static_cast<std::uint32_t>(rank) >= g_state.header->world_size) {
    fail_environment("cannot join the run: the rank must be below the world size", "another rank");
  }
  libc::resolve_all();
  g_state.identity.store(mix_identity(g_state.header->seed, static_cast<std::uint64_t>(rank)));
  g_state.forks.store(0);
  t_thread = {};
  t_thread.identity = g_state.identity.load();
  t_thread.named = true;
  char text[16];
  std::snprintf(text, sizeof text, "%d", rank);
  setenv("PHANTORA_RANK", text, 1);  // children that are started afresh learn from it whose they are
  take_block(static_cast<std::uint32_t>(rank), rank, actor_block(static_cast<std::uint32_t>(rank)).host_ns.load());
  t_thread.driving = true;
  register_driver();
}

void detach(int rank, std::uint64_t clock_ns, std::uint64_t identity) {
  g_state.rank = rank;
  g_state.pid = getpid();
  g_state.actor = kNoActor;
  g_state.block = nullptr;
  g_state.ring = nullptr;
  g_state.clock.store(clock_ns);
  g_state.seen.store(0);
  g_state.identity.store(identity);
  g_state.forks.store(0);
  g_state.exited.store(false);
  g_state.cpu_counted_ns = real_ns(CLOCK_PROCESS_CPUTIME_ID);
  t_thread.driving = false;
  t_thread.leads = true;
  t_thread.identity = identity;
  t_thread.named = true;
  g_state.mode.store(static_cast<int>(Mode::kDetached), std::memory_order_release);
}

void reset_after_fork() {
  // Only this thread lives on. What the parent held back or waited for stays the parent's.
  g_state.lock.reset();
  stop_holding(true);
  close_connections();
  if (!is_virtual()) {
    g_state.pid = getpid();
    return;
  }
  const std::uint64_t clock_ns = stamp_ns();
  g_state.head = g_state.published_head = g_state.tail = 0;
  std::memset(g_state.default_sequence, 0, sizeof g_state.default_sequence);
  for (std::uint32_t index = 0; index < g_state.used_count; ++index) {
    g_state.sequence[g_state.used_streams[index]] = 0;
    g_state.stream_used[g_state.used_streams[index]] = false;
  }
  g_state.used_count = 0;
  g_state.default_streams_mixed = false;
  g_state.drivers.store(0);
  g_state.blocked.store(0);
  const std::uint64_t own = t_thread.own;
  const std::uint64_t identity = mix_identity(g_state.identity.load(), g_state.forks.load());
  t_thread = {};
  detach(g_state.rank, std::max(clock_ns, own), identity);
}

void ensure_driving() {
  const Mode now = current_mode();
  if (now == Mode::kDetached) attach_child();
  if (now == Mode::kInert || now == Mode::kNull || t_thread.driving) return;
  t_thread.driving = true;
  register_driver();
  move_clock_to(t_thread.own);
}

bool driving() { return is_driver(); }

std::uint64_t now_ns() {
  switch (current_mode()) {
    case Mode::kActor:
      if (t_thread.driving) return g_state.clock.load(std::memory_order_relaxed);
      if (t_thread.behind != 0) return std::max(t_thread.own, t_thread.seen);
      return std::max({g_state.header->global_ns.load(std::memory_order_relaxed), t_thread.own, t_thread.seen});
    case Mode::kDetached:
      return std::max(
          {stamp_ns(), g_state.clock.load(std::memory_order_relaxed), g_state.seen.load(std::memory_order_relaxed)});
    default:
      return real_ns(CLOCK_MONOTONIC);
  }
}

std::uint64_t stamp_ns() {
  switch (current_mode()) {
    case Mode::kActor:
      return t_thread.driving ? g_state.clock.load(std::memory_order_relaxed) : t_thread.own;
    case Mode::kDetached: {
      if (g_state.header->clock_mode != wire::ClockMode::kMeasured)
        return t_thread.leads ? g_state.clock.load(std::memory_order_relaxed) : t_thread.own;
      // Measured: a worker's clock moves by its CPU time too (rule 12).
      SpinGuard guard(g_state.lock);
      const std::uint64_t used = real_ns(CLOCK_PROCESS_CPUTIME_ID);
      const std::uint64_t clock_ns = g_state.clock.load() + (used - g_state.cpu_counted_ns);
      g_state.cpu_counted_ns = used;
      g_state.clock.store(clock_ns);
      return std::max(clock_ns, t_thread.own);
    }
    default:
      return 0;
  }
}

void move_clock_to(std::uint64_t clock_ns) {
  if (clock_ns <= g_state.clock.load(std::memory_order_relaxed)) return;
  if (current_mode() == Mode::kDetached) {
    std::uint64_t held = g_state.clock.load();
    while (held < clock_ns && !g_state.clock.compare_exchange_weak(held, clock_ns)) {
    }
    return;
  }
  SpinGuard guard(g_state.lock);
  if (clock_ns > g_state.clock.load(std::memory_order_relaxed)) publish_clock_locked(clock_ns);
}

void join(std::uint64_t clock_ns) {
  if (is_driver() || (current_mode() == Mode::kDetached && t_thread.leads)) {
    move_clock_to(clock_ns);
  } else if (is_virtual()) {
    t_thread.own = std::max(t_thread.own, clock_ns);
  }
}

void advance(std::uint64_t ns) {
  if (ns == 0) return;
  if (current_mode() == Mode::kDetached) {
    // A child's other threads (one that sends what its queue holds) work beside its main one, in real time.
    if (t_thread.leads) {
      g_state.clock.fetch_add(ns);
    } else {
      t_thread.own += ns;
    }
  } else if (is_driver()) {
    SpinGuard guard(g_state.lock);
    publish_clock_locked(g_state.clock.load(std::memory_order_relaxed) + ns);
  }
}

void charge(CallKind kind) {
  if (is_virtual()) advance(g_state.header->host_cost_ns[static_cast<std::size_t>(kind)]);
}

void clock_read_guard() {
  // A loop that spins until some time has passed must end; no ordinary code reads the clock this often without an op.
  if (++t_thread.reads <= kGuardReads) return;
  t_thread.behind = 0;
  advance(kGuardStepNs);
}

void register_driver() { g_state.drivers.fetch_add(1); }

void enter_blocking() {
  flush_records();
  const std::uint32_t blocked = g_state.blocked.fetch_add(1) + 1;
  // A hint only: set while every driving thread is inside a blocking call.
  if (blocked >= g_state.drivers.load() && g_state.block != nullptr) g_state.block->outside.store(blocked);
}

void leave_blocking() {
  const int error = errno;
  g_state.blocked.fetch_sub(1);
  t_thread.reads = 0;
  if (g_state.block != nullptr) {
    g_state.block->outside.store(0);
    move_clock_to(g_state.block->floor_ns.load(std::memory_order_acquire));
  }
  errno = error;
}

void send_exit(int status) {
  if (!is_virtual() || getpid() != g_state.pid || g_state.exited.exchange(true)) return;
  const std::uint64_t last = std::max(stamp_ns(), g_state.clock.load());
  auto* clocks = at_offset<wire::ChildClock>(g_state.header->clock_offset);
  const auto pid = static_cast<std::uint64_t>(g_state.pid);
  auto& slot = clocks[pid % wire::kClockSlots];
  slot.clock_ns.store(is_actor() ? g_state.clock.load() : last);
  slot.pid.store(pid, std::memory_order_release);
  if (!is_actor()) return;
  if (cuda::release_all != nullptr) cuda::release_all();
  Record record = {};
  record.type = wire::RecordType::kExit;
  record.exit.status = status;
  t_thread.driving = true;
  submit(CallKind::kFree, record);
  flush_records();
  ring_doorbell();
}

}  // namespace phantora::client
