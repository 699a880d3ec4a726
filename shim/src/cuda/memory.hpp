// Device memory: one range of addresses per device, the same in every process of a run, backed only where somebody
// writes. Accounting is exact and shared by all processes that use a device (wire::DeviceState).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/state.hpp"

namespace phantora::cuda {

inline constexpr std::uint64_t kGranule = 2ULL << 20;     // of physical device memory, as the driver's
inline constexpr std::uint64_t kSmallLimit = 1ULL << 20;  // below: carved out of shared granules
inline constexpr std::uint64_t kSmallAlign = 512;
inline constexpr std::uint64_t kCopyLimit = 1ULL << 20;  // host copies up to here really copy

struct Allocation {
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;  // as asked for
  int node_device = 0;
  bool managed = false;
  bool mapped = false;  // by cuMemMap
  std::uint64_t id = 0;
};

// cudaMalloc and relatives. kOutOfMemory leaves no trace but the mark in the record stream.
Status allocate(void*& pointer, std::uint64_t bytes, int node_device, bool managed = false);
// The driver lets all work of the device finish before it takes memory back, unless the free is ordered on a stream.
Status release(void* pointer, bool wait = true);
// The allocation that holds `pointer`; false where there is none.
bool find_allocation(const void* pointer, Allocation& allocation);
// Does the address lie in a device range at all (cheap, no look-up)?
bool device_address(const void* pointer);

// The device's account (wire::DeviceState).
bool charge_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind, std::uint64_t requested);
void uncharge_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind);
void memory_info(int node_device, std::uint64_t& free_bytes, std::uint64_t& total_bytes);
std::uint64_t allocated_bytes(int node_device);  // by cudaMalloc in this process

// Virtual memory management (cuMem*).
Status reserve_address(std::uint64_t& address, std::uint64_t bytes, std::uint64_t alignment, std::uint64_t wanted);
Status free_address(std::uint64_t address, std::uint64_t bytes);
Status create_physical(std::uint64_t& handle, std::uint64_t bytes, const abi::AllocationProperties& properties);
Status release_physical(std::uint64_t handle);
Status map_physical(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset, std::uint64_t handle);
Status unmap_physical(std::uint64_t address, std::uint64_t bytes);
Status physical_properties(std::uint64_t handle, abi::AllocationProperties& properties);
Status physical_at(std::uint64_t& handle, std::uint64_t address);
bool mapped_range(std::uint64_t address, std::uint64_t bytes);

// Page-locked host memory.
Status allocate_host(void*& pointer, std::uint64_t bytes, unsigned flags);
Status free_host(void* pointer);
Status register_host(void* pointer, std::uint64_t bytes, unsigned flags);
Status unregister_host(void* pointer);
struct HostRange {
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  bool registered = false;
  int ordinal = 0;
};
bool find_host(const void* pointer, HostRange& range);
inline bool pinned(const void* pointer) {
  HostRange range;
  return find_host(pointer, range);
}

void release_memory();          // at exit
void forget_memory_in_child();  // after fork: nothing here is the child's

}  // namespace phantora::cuda
