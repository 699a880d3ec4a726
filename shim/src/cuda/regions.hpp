// Address ranges that stand for device memory, and what is known of each page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace phantora::cuda {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kPagesPerGranule = 512;

// Fixed, so that addresses are the same in every rank and every run. Below where Linux puts programs, heaps and
// libraries.
inline constexpr std::uintptr_t kVirtualBase = 0x100000000000;  // reservations of cuMemAddressReserve
inline constexpr std::uint64_t kVirtualBytes = 4ULL << 40;
inline constexpr std::uintptr_t kDeviceBase = 0x200000000000;  // one region per node device
inline constexpr std::uint64_t kDeviceStride = 1ULL << 40;

using ByteSet = std::array<std::uint64_t, kPage / 64>;  // one bit a byte of a mixed page

struct Region {
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;
  std::mutex mutex;
  // Per granule: not 0 when some page of it is known or dirty. Read without the lock.
  std::uint8_t* granules = nullptr;
  // Per page: kKnown or kMixed (else unknown), and kDirty where the content may differ from zero.
  std::uint8_t* pages = nullptr;
  std::unordered_map<std::uint64_t, std::unique_ptr<ByteSet>> mixed;
};
inline constexpr std::uint8_t kKnown = 1, kMixed = 2, kDirty = 4;

// Maps the region on first use; nullptr when the address space has no room (then the process cannot use the device).
Region* device_region(int node_device);
Region* virtual_region();
// The region that holds an address, when it has been mapped.
Region* region_of(std::uintptr_t address);
}  // namespace phantora::cuda
