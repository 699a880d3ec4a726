#include "cuda/pools.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "cuda/memory.hpp"
#include "cuda/streams.hpp"

namespace phantora::cuda {
namespace {

struct Pool {
  int ordinal = 0;
  bool own = false;  // of cudaMemPoolCreate
  std::uint64_t used = 0, high = 0;
  std::uint64_t release_threshold = 0;
  int reuse[3] = {1, 1, 1};
  std::map<int, int> access;  // ordinal to flags
};

struct Pools {
  std::mutex mutex;
  Pool defaults[kMaxDevices];
  void* current[kMaxDevices] = {};
  std::map<void*, Pool*> alive;
  std::unordered_map<void*, std::pair<Pool*, std::uint64_t>> blocks;
};

Pools& pools() {
  static Pools* instance = [] {
    auto* made = new Pools;
    for (int i = 0; i < kMaxDevices; ++i) {
      made->defaults[i].ordinal = i;
      made->alive[&made->defaults[i]] = &made->defaults[i];
    }
    return made;
  }();
  return *instance;
}

Pool* find(void* handle) {
  const auto found = pools().alive.find(handle);
  return found == pools().alive.end() ? nullptr : found->second;
}

constexpr int kReuseFirst = 1, kReuseLast = 3, kThreshold = 4, kReserved = 5, kReservedHigh = 6, kUsed = 7,
              kUsedHigh = 8;
constexpr int kReadWrite = 3;

}  // namespace

Status pool_allocate(void** pointer, std::size_t bytes, void* handle, void* stream) {
  if (pointer == nullptr) return abi::kInvalidValue;
  StreamRef ref;
  if (const Status status = resolve_stream(stream, ref); status != abi::kSuccess) return status;
  Pools& p = pools();
  Pool* pool;
  {
    std::lock_guard lock(p.mutex);
    const int ordinal = std::max(0, ordinal_of(ref.node_device));
    if (handle == nullptr) handle = p.current[ordinal] != nullptr ? p.current[ordinal] : &p.defaults[ordinal];
    pool = find(handle);
    if (pool == nullptr) return abi::kInvalidValue;
  }
  if (const Status status = allocate(*pointer, bytes, node_device_of(pool->ordinal)); status != abi::kSuccess)
    return status;
  std::lock_guard lock(p.mutex);
  if (*pointer != nullptr) p.blocks[*pointer] = {pool, bytes};
  pool->used += bytes;
  pool->high = std::max(pool->high, pool->used);
  return abi::kSuccess;
}

Status pool_free(void* pointer, void* stream) {
  StreamRef ref;
  if (const Status status = resolve_stream(stream, ref); status != abi::kSuccess) return status;
  if (pointer == nullptr) return abi::kInvalidValue;
  {
    Pools& p = pools();
    std::lock_guard lock(p.mutex);
    if (const auto block = p.blocks.find(pointer); block != p.blocks.end()) {
      block->second.first->used -= block->second.second;
      p.blocks.erase(block);
    }
  }
  return release(pointer, false);
}

Status default_pool(void** pool, int ordinal) {
  if (pool == nullptr) return abi::kInvalidValue;
  if (ordinal < 0 || ordinal >= visible_count()) return abi::kInvalidDevice;
  *pool = &pools().defaults[ordinal];
  return abi::kSuccess;
}

Status current_pool(void** pool, int ordinal) {
  if (const Status status = default_pool(pool, ordinal); status != abi::kSuccess) return status;
  std::lock_guard lock(pools().mutex);
  if (pools().current[ordinal] != nullptr) *pool = pools().current[ordinal];
  return abi::kSuccess;
}

Status set_current_pool(int ordinal, void* pool) {
  if (ordinal < 0 || ordinal >= visible_count()) return abi::kInvalidDevice;
  std::lock_guard lock(pools().mutex);
  if (find(pool) == nullptr) return abi::kInvalidValue;
  pools().current[ordinal] = pool;
  return abi::kSuccess;
}

Status create_pool(void** handle, const abi::PoolProperties* properties) {
  if (handle == nullptr || properties == nullptr || properties->allocType != 1) return abi::kInvalidValue;
  if (properties->location.type != 1 || properties->handleTypes != 0)
    return abi::kNotSupported;  // device memory, not exported
  if (properties->location.id < 0 || properties->location.id >= visible_count()) return abi::kInvalidDevice;
  auto* pool = new Pool;
  pool->ordinal = properties->location.id;
  pool->own = true;
  std::lock_guard lock(pools().mutex);
  pools().alive[pool] = pool;
  *handle = pool;
  return abi::kSuccess;
}

Status destroy_pool(void* handle) {
  Pools& p = pools();
  std::lock_guard lock(p.mutex);
  Pool* pool = find(handle);
  if (pool == nullptr || !pool->own) return abi::kInvalidValue;
  for (void*& current : p.current) {
    if (current == handle) current = nullptr;
  }
  for (auto& block : p.blocks) {
    if (block.second.first == pool) block.second.first = &p.defaults[pool->ordinal];
  }
  p.alive.erase(handle);
  delete pool;
  return abi::kSuccess;
}

bool valid_pool(void* pool) {
  std::lock_guard lock(pools().mutex);
  return find(pool) != nullptr;
}

Status pool_attribute(void* handle, int attribute, void* value) {
  std::lock_guard lock(pools().mutex);
  const Pool* pool = find(handle);
  if (pool == nullptr || value == nullptr) return abi::kInvalidValue;
  std::uint64_t wide = 0;
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      std::memcpy(value, &pool->reuse[attribute - kReuseFirst], sizeof(int));
      return abi::kSuccess;
    case kThreshold:
      wide = pool->release_threshold;
      break;
    case kReserved:
    case kUsed:
      wide = pool->used;
      break;
    case kReservedHigh:
    case kUsedHigh:
      wide = pool->high;
      break;
    default:
      return abi::kInvalidValue;
  }
  std::memcpy(value, &wide, sizeof wide);
  return abi::kSuccess;
}

Status set_pool_attribute(void* handle, int attribute, const void* value) {
  std::lock_guard lock(pools().mutex);
  Pool* pool = find(handle);
  if (pool == nullptr || value == nullptr) return abi::kInvalidValue;
  if (attribute >= kReuseFirst && attribute <= kReuseLast) {
    std::memcpy(&pool->reuse[attribute - kReuseFirst], value, sizeof(int));
  } else if (attribute == kThreshold) {
    std::memcpy(&pool->release_threshold, value, sizeof pool->release_threshold);
  } else if (attribute == kReservedHigh || attribute == kUsedHigh) {
    pool->high = pool->used;  // only 0 may be written: it starts the mark anew
  } else {
    return abi::kInvalidValue;
  }
  return abi::kSuccess;
}

Status set_pool_access(void* handle, const abi::MemoryAccess* list, std::size_t count) {
  std::lock_guard lock(pools().mutex);
  Pool* pool = find(handle);
  if (pool == nullptr || (list == nullptr && count != 0)) return abi::kInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i].location.id < 0 || list[i].location.id >= visible_count()) return abi::kInvalidDevice;
    pool->access[list[i].location.id] = list[i].flags;
  }
  return abi::kSuccess;
}

Status pool_access(int* flags, void* handle, const abi::MemoryLocation* location) {
  std::lock_guard lock(pools().mutex);
  const Pool* pool = find(handle);
  if (pool == nullptr || flags == nullptr || location == nullptr) return abi::kInvalidValue;
  const auto found = pool->access.find(location->id);
  *flags = location->id == pool->ordinal ? kReadWrite : (found == pool->access.end() ? 0 : found->second);
  return abi::kSuccess;
}

}  // namespace phantora::cuda
