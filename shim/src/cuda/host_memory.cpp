// Page-locked host memory: ordinary pages, remembered so that pointers can be told from pageable ones.
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "cuda/memory.hpp"

namespace phantora::cuda {
namespace {

struct HostRanges {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, HostRange> ranges;
};

HostRanges& host() {
  static HostRanges* instance = new HostRanges;
  return *instance;
}

std::uint64_t page_round(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

bool overlaps(const HostRanges& h, std::uintptr_t base, std::uint64_t bytes) {
  auto next = h.ranges.lower_bound(base);
  if (next != h.ranges.end() && next->first < base + bytes) return true;
  if (next == h.ranges.begin()) return false;
  --next;
  return next->first + next->second.bytes > base;
}

}  // namespace

Status allocate_host(void*& pointer, std::uint64_t bytes, unsigned flags) {
  pointer = nullptr;
  if (bytes == 0) return abi::kSuccess;
  client::charge(client::CallKind::kHostAlloc);
  void* mapped = mmap(nullptr, page_round(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return abi::kOutOfMemory;
  HostRanges& h = host();
  std::unique_lock lock(h.mutex);
  const auto base = reinterpret_cast<std::uintptr_t>(mapped);
  h.ranges[base] = {base, bytes, flags, false, current_ordinal()};
  pointer = mapped;
  return abi::kSuccess;
}

Status free_host(void* pointer) {
  if (pointer == nullptr) return abi::kSuccess;
  HostRanges& h = host();
  std::unique_lock lock(h.mutex);
  const auto found = h.ranges.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == h.ranges.end() || found->second.registered) return abi::kInvalidValue;
  const std::uint64_t bytes = page_round(found->second.bytes);
  h.ranges.erase(found);
  lock.unlock();
  munmap(pointer, bytes);
  return abi::kSuccess;
}

Status register_host(void* pointer, std::uint64_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0) return abi::kInvalidValue;
  client::charge(client::CallKind::kHostAlloc);
  HostRanges& h = host();
  std::unique_lock lock(h.mutex);
  const auto base = reinterpret_cast<std::uintptr_t>(pointer);
  if (overlaps(h, base, bytes)) return abi::kHostAlreadyRegistered;
  h.ranges[base] = {base, bytes, flags, true, current_ordinal()};
  return abi::kSuccess;
}

Status unregister_host(void* pointer) {
  HostRanges& h = host();
  std::unique_lock lock(h.mutex);
  const auto found = h.ranges.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == h.ranges.end() || !found->second.registered) return abi::kHostNotRegistered;
  h.ranges.erase(found);
  return abi::kSuccess;
}

bool find_host(const void* pointer, HostRange& range) {
  HostRanges& h = host();
  std::shared_lock lock(h.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto found = h.ranges.upper_bound(address);
  if (found == h.ranges.begin()) return false;
  --found;
  if (address - found->first >= found->second.bytes) return false;
  range = found->second;
  return true;
}

}  // namespace phantora::cuda
