#include "segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <system_error>

#ifndef PHANTORA_BUILD_ID
#define PHANTORA_BUILD_ID "development"
#endif

namespace phantora::core {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// In the order of wire::CallKind; the keys are host.<name>, `_` optional.
constexpr const char* kCallNames[] = {"free",   "launch",       "gemm",        "library",      "memcpy",
                                      "memset", "event_record", "stream_wait", "sync",         "query",
                                      "malloc", "free_memory",  "host_alloc",  "collective",   "comm_init",
                                      "op",     "store",        "file_lock",   "graph_launch", "module_load"};
static_assert(std::size(kCallNames) == static_cast<std::size_t>(wire::CallKind::kCount));

void fill_host_costs(const Config& config, wire::RunHeader& header) {
  for (std::size_t kind = 1; kind < std::size(kCallNames); ++kind) {
    const std::string spaced = std::string("host.") + kCallNames[kind];
    std::string squashed;
    for (char c : spaced) {
      if (c != '_') squashed.push_back(c);
    }
    const std::string& key = config.has(squashed) ? squashed : spaced;
    header.host_cost_ns[kind] = config.get_u64(key, 0);
    if (header.host_cost_ns[kind] > kLatest) throw ConfigError(config.origin() + ": `" + key + "` is too large");
  }
  header.launch_latency_ns = config.get_u64("host.launch_latency", 0);
}

void copy_text(char* to, std::size_t room, const std::string& text) {
  std::strncpy(to, text.c_str(), room - 1);
  to[room - 1] = '\0';
}

void fill_gpu(const Config& config, wire::GpuProperties& gpu) {
  copy_text(gpu.name, sizeof gpu.name, config.get("gpu.name", "NVIDIA H100 80GB HBM3"));
  copy_text(gpu.uuid_prefix, sizeof gpu.uuid_prefix, config.get("gpu.uuid_prefix", "GPU-50480100"));
#define PHANTORA_FIELD(field) gpu.field = config.get_u64("gpu." #field, 0)
  PHANTORA_FIELD(total_bytes);
  PHANTORA_FIELD(context_bytes);
  PHANTORA_FIELD(compute_major);
  PHANTORA_FIELD(compute_minor);
  PHANTORA_FIELD(sm_count);
  PHANTORA_FIELD(clock_khz);
  PHANTORA_FIELD(memory_clock_khz);
  PHANTORA_FIELD(memory_bus_bits);
  PHANTORA_FIELD(l2_bytes);
  PHANTORA_FIELD(shared_per_block);
  PHANTORA_FIELD(shared_per_block_optin);
  PHANTORA_FIELD(shared_per_sm);
  PHANTORA_FIELD(reserved_shared_per_block);
  PHANTORA_FIELD(registers_per_block);
  PHANTORA_FIELD(registers_per_sm);
  PHANTORA_FIELD(max_threads_per_sm);
  PHANTORA_FIELD(max_blocks_per_sm);
  PHANTORA_FIELD(pcie_domain);
  PHANTORA_FIELD(power_limit_mw);
  PHANTORA_FIELD(driver_version);
  PHANTORA_FIELD(nvlink_count);
  PHANTORA_FIELD(copy_engines);
  PHANTORA_FIELD(nccl_comm_bytes);
#undef PHANTORA_FIELD
}

std::uint64_t random_token() {
  std::uint64_t token = 0;
  if (getrandom(&token, sizeof token, 0) != static_cast<ssize_t>(sizeof token)) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  return token;
}

}  // namespace

Segment::Segment(const Config& config) {
  const std::uint64_t world = config.require_u64("world_size");
  const std::uint64_t extra = config.get_u64("extra_actors", 64);
  const std::uint64_t slots = config.get_u64("ring_slots", 4096);
  const std::uint64_t per_node = config.get_u64("gpus_per_node", world);
  if (world == 0 || world > 65536) throw ConfigError(config.origin() + ": `world_size` must be 1 to 65536");
  if (extra > 65536) throw ConfigError(config.origin() + ": `extra_actors` must be at most 65536");
  if (per_node == 0 || per_node > 255) throw ConfigError(config.origin() + ": `gpus_per_node` must be 1 to 255");
  if (slots < 16 || slots > (1U << 24)) throw ConfigError(config.origin() + ": `ring_slots` must be 16 to 16777216");
  const std::string clock = config.get("clock", "modelled");
  if (clock != "modelled" && clock != "measured") {
    throw ConfigError(config.origin() + ": `clock` must be modelled or measured, found `" + clock + "`");
  }

  const std::uint64_t actors = world + extra;
  const std::uint64_t device_offset = round_up(sizeof(wire::RunHeader), kPage);
  const std::uint64_t name_offset = round_up(device_offset + world * sizeof(wire::DeviceState), kPage);
  const std::uint64_t clock_offset = name_offset + round_up(wire::kNameSlots * sizeof(std::uint64_t), kPage);
  const std::uint64_t actor_offset = clock_offset + round_up(wire::kClockSlots * sizeof(wire::ChildClock), kPage);
  const std::uint64_t stride = round_up(wire::record_offset + slots * sizeof(wire::Record), kPage);
  bytes_ = actor_offset + actors * stride;

  fd_ = memfd_create("phantora-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  // Pages that nobody touches (unused extra actors) take no memory.
  if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
    throw std::system_error(errno, std::generic_category(), "ftruncate");
  // A rank that shortened it would take the core and all others down (SIGBUS).
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw std::system_error(errno, std::generic_category(), "sealing the segment");
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (base == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of the segment");
  base_ = static_cast<std::byte*>(base);

  auto& head = header();
  head.version = wire::kVersion;
  head.header_bytes = sizeof(wire::RunHeader);
  copy_text(head.build_id, sizeof head.build_id, PHANTORA_BUILD_ID);
  head.world_size = static_cast<std::uint32_t>(world);
  head.gpus_per_node = static_cast<std::uint32_t>(per_node);
  head.actor_count = static_cast<std::uint32_t>(actors);
  head.ring_slots = static_cast<std::uint32_t>(slots);
  head.device_offset = device_offset;
  head.name_offset = name_offset;
  head.clock_offset = clock_offset;
  head.actor_offset = actor_offset;
  head.actor_stride = stride;
  head.total_bytes = bytes_;
  head.epoch_ns = config.get_i64("epoch_ns", 0);
  head.seed = config.get_u64("seed", 0);
  head.clock_mode = clock == "measured" ? wire::ClockMode::kMeasured : wire::ClockMode::kModelled;
  head.cpu_count = static_cast<std::uint32_t>(config.get_u64("cpu_count", 1));
  head.rpc_token = random_token();
  copy_text(head.rpc_name, sizeof head.rpc_name,
            "phantora-" + std::to_string(getpid()) + "-" + std::to_string(random_token() % 1000000007ULL));
  fill_host_costs(config, head);
  fill_gpu(config, head.gpu);
  std::memcpy(constants_, base_, sizeof constants_);
  for (std::uint32_t index = 0; index < world; ++index) {
    auto& block = actor(index);
    block.rank = index;
    block.device = index % head.gpus_per_node;
    block.timed_wait_ns.store(wire::kUnresolved, std::memory_order_relaxed);
    block.next_timer_ns.store(wire::kUnresolved, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_release);
  head.magic = wire::kMagic;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
  if (fd_ >= 0) close(fd_);
}

wire::DeviceState& Segment::device(std::uint32_t rank) {
  return reinterpret_cast<wire::DeviceState*>(base_ + constants().device_offset)[rank];
}

wire::ActorBlock& Segment::actor(std::uint32_t index) {
  return *reinterpret_cast<wire::ActorBlock*>(base_ + constants().actor_offset + index * constants().actor_stride);
}

const wire::Record* Segment::ring(std::uint32_t index) {
  return reinterpret_cast<const wire::Record*>(base_ + constants().actor_offset + index * constants().actor_stride +
                                               wire::record_offset);
}

void Segment::add_name(std::uint64_t hash) {
  auto* names = reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + constants().name_offset);
  // A full neighbourhood only means that ranks send this name more than once.
  for (std::uint64_t probe = 0; probe < 8; ++probe) {
    auto& slot = names[(hash + probe) % wire::kNameSlots];
    const std::uint64_t held = slot.load(std::memory_order_relaxed);
    if (held == hash) return;
    if (held == 0) {
      slot.store(hash, std::memory_order_release);
      return;
    }
  }
}

std::string Segment::path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_); }

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns) {
  timespec timeout{static_cast<time_t>(timeout_ns / 1000000000ULL), static_cast<long>(timeout_ns % 1000000000ULL)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

std::uint64_t real_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace phantora::core
