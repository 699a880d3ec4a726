// Free ranges of addresses: first fit in address order, neighbours joined.
#pragma once

#include <cstdint>
#include <map>

namespace phantora::cuda {

class RangeList {
 public:
  void give(std::uintptr_t address, std::uint64_t bytes) {
    auto next = free_.lower_bound(address);
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == address) {
        address = previous->first;
        bytes += previous->second;
        free_.erase(previous);
      }
    }
    if (next != free_.end() && address + bytes == next->first) {
      bytes += next->second;
      free_.erase(next);
    }
    free_[address] = bytes;
  }

  // 0 when nothing fits. `alignment` is a power of two.
  std::uintptr_t take(std::uint64_t bytes, std::uint64_t alignment) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const std::uintptr_t start = it->first;
      const std::uintptr_t end = start + it->second;
      const std::uintptr_t address = (start + alignment - 1) / alignment * alignment;
      if (address >= end || end - address < bytes) continue;
      free_.erase(it);
      if (address > start) free_[start] = address - start;
      if (address + bytes < end) free_[address + bytes] = end - address - bytes;
      return address;
    }
    return 0;
  }

 private:
  std::map<std::uintptr_t, std::uint64_t> free_;
};

}  // namespace phantora::cuda
