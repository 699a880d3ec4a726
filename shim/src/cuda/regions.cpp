#include "cuda/regions.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "cuda/memory.hpp"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace phantora::cuda {
namespace {

std::atomic<Region*> device_regions[kMaxDevices];
std::atomic<Region*> the_virtual_region;
std::mutex map_mutex;

void* reserve(std::uintptr_t wanted, std::uint64_t bytes) {
  const int fixed = wanted == 0 ? 0 : MAP_FIXED_NOREPLACE;
  void* mapped = mmap(reinterpret_cast<void*>(wanted), bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (wanted != 0 && mapped != reinterpret_cast<void*>(wanted)) {  // a kernel older than the flag
    munmap(mapped, bytes);
    return nullptr;
  }
  // Huge pages would turn a 4-byte write into 2 MiB of real memory in each of many ranks.
  madvise(mapped, bytes, MADV_NOHUGEPAGE);
  return mapped;
}

Region* map_region(std::atomic<Region*>& slot, std::uintptr_t base, std::uint64_t bytes) {
  Region* region = slot.load(std::memory_order_acquire);
  if (region != nullptr) return region;
  std::lock_guard lock(map_mutex);
  region = slot.load(std::memory_order_relaxed);
  if (region != nullptr) return region;
  void* memory = reserve(base, bytes);
  void* pages = reserve(0, bytes / kPage);
  void* granules = reserve(0, bytes / kGranule);
  if (memory == nullptr || pages == nullptr || granules == nullptr) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "no room for %llu GiB of addresses at %p: is the address space limited (ulimit -v)?",
                  static_cast<unsigned long long>(bytes >> 30), reinterpret_cast<void*>(base));
    client::note("failure", text);
    return nullptr;
  }
  region = new Region;
  region->base = base;
  region->bytes = bytes;
  region->pages = static_cast<std::uint8_t*>(pages);
  region->granules = static_cast<std::uint8_t*>(granules);
  slot.store(region, std::memory_order_release);
  return region;
}

}  // namespace

Region* device_region(int node_device) {
  // The driver's addresses are not scarce: four times the capacity, so that only bytes decide what fits.
  const std::uint64_t wanted = (client::header()->gpu.total_bytes * 4 + kGranule - 1) / kGranule * kGranule;
  return map_region(device_regions[node_device], kDeviceBase + kDeviceStride * static_cast<std::uintptr_t>(node_device),
                    std::min(wanted, kDeviceStride));
}

Region* virtual_region() { return map_region(the_virtual_region, kVirtualBase, kVirtualBytes); }

Region* region_of(std::uintptr_t address) {
  Region* region = nullptr;
  if (address >= kDeviceBase && address < kDeviceBase + kDeviceStride * kMaxDevices) {
    region = device_regions[(address - kDeviceBase) / kDeviceStride].load(std::memory_order_acquire);
  } else if (address >= kVirtualBase && address < kVirtualBase + kVirtualBytes) {
    region = the_virtual_region.load(std::memory_order_acquire);
  }
  return region != nullptr && address - region->base < region->bytes ? region : nullptr;
}

bool device_address(const void* pointer) { return region_of(reinterpret_cast<std::uintptr_t>(pointer)) != nullptr; }

}  // namespace phantora::cuda
