// CUDA driver: memory, virtual memory management, pools, pointers.
#include <algorithm>
#include <cstring>

#include "cuda/memory.hpp"
#include "cuda/pools.hpp"
#include "cuda/state.hpp"
#include "cuda/streams.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

using DevicePointer = std::uint64_t;

// The driver API has no implicit context.
int need_context() { return current_context() == nullptr ? abi::kInvalidContext : abi::kSuccess; }
void* to_pointer(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

template <typename T>
void put(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
}

}  // namespace

extern "C" {

int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (const int status = need_context(); status != abi::kSuccess) return status;
  std::uint64_t available = 0, total = 0;
  memory_info(current_node_device(), available, total);
  if (free_bytes != nullptr) *free_bytes = available;
  if (total_bytes != nullptr) *total_bytes = total;
  return abi::kSuccess;
}

int cuMemAlloc_v2(DevicePointer* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0) return abi::kInvalidValue;
  if (const int status = need_context(); status != abi::kSuccess) return status;
  void* made = nullptr;
  const int status = allocate(made, bytes, current_node_device());
  *pointer = reinterpret_cast<DevicePointer>(made);
  return status;
}
int cuMemAllocPitch_v2(DevicePointer* pointer, std::size_t* pitch, std::size_t width, std::size_t height, unsigned) {
  if (pitch == nullptr) return abi::kInvalidValue;
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(pointer, *pitch * height);
}
int cuMemAllocManaged(DevicePointer* pointer, std::size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0 || (flags != 1 && flags != 2)) return abi::kInvalidValue;
  if (const int status = need_context(); status != abi::kSuccess) return status;
  void* made = nullptr;
  const int status = allocate(made, bytes, current_node_device(), true);
  *pointer = reinterpret_cast<DevicePointer>(made);
  return status;
}
int cuMemFree_v2(DevicePointer pointer) {
  if (const int status = need_context(); status != abi::kSuccess) return status;
  return release(to_pointer(pointer));
}

int cuMemGetAddressRange_v2(DevicePointer* base, std::size_t* bytes, DevicePointer pointer) {
  Allocation allocation;
  if (!find_allocation(to_pointer(pointer), allocation)) return abi::kNotFound;
  if (base != nullptr) *base = allocation.base;
  if (bytes != nullptr) *bytes = allocation.bytes;
  return abi::kSuccess;
}

int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0 || (flags & ~7U) != 0) return abi::kInvalidValue;
  if (const int status = need_context(); status != abi::kSuccess) return status;
  return allocate_host(*pointer, bytes, flags);
}
int cuMemAllocHost_v2(void** pointer, std::size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
int cuMemFreeHost(void* pointer) { return free_host(pointer); }
int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  return register_host(pointer, bytes, flags);
}
int cuMemHostUnregister(void* pointer) { return unregister_host(pointer); }
int cuMemHostGetDevicePointer_v2(DevicePointer* device, void* host, unsigned flags) {
  HostRange range;
  if (device == nullptr || flags != 0 || !find_host(host, range)) return abi::kInvalidValue;
  *device = reinterpret_cast<DevicePointer>(host);
  return abi::kSuccess;
}
int cuMemHostGetFlags(unsigned* flags, void* host) {
  HostRange range;
  if (flags == nullptr || !find_host(host, range)) return abi::kInvalidValue;
  *flags = range.flags | 2;
  return abi::kSuccess;
}

int cuMemAllocAsync(DevicePointer* pointer, std::size_t bytes, void* stream) {
  return pool_allocate(reinterpret_cast<void**>(pointer), bytes, nullptr, stream);
}
int cuMemAllocFromPoolAsync(DevicePointer* pointer, std::size_t bytes, void* pool, void* stream) {
  return pool == nullptr ? abi::kInvalidValue : pool_allocate(reinterpret_cast<void**>(pointer), bytes, pool, stream);
}
int cuMemFreeAsync(DevicePointer pointer, void* stream) { return pool_free(to_pointer(pointer), stream); }
int cuDeviceGetDefaultMemPool(void** pool, int device) { return default_pool(pool, device); }
int cuDeviceGetMemPool(void** pool, int device) { return current_pool(pool, device); }
int cuDeviceSetMemPool(int device, void* pool) { return set_current_pool(device, pool); }
int cuMemPoolCreate(void** pool, const abi::PoolProperties* properties) { return create_pool(pool, properties); }
int cuMemPoolDestroy(void* pool) { return destroy_pool(pool); }
int cuMemPoolTrimTo(void* pool, std::size_t) { return valid_pool(pool) ? abi::kSuccess : abi::kInvalidValue; }
int cuMemPoolGetAttribute(void* pool, int attribute, void* value) { return pool_attribute(pool, attribute, value); }
int cuMemPoolSetAttribute(void* pool, int attribute, void* value) { return set_pool_attribute(pool, attribute, value); }
int cuMemPoolSetAccess(void* pool, const abi::MemoryAccess* list, std::size_t count) {
  return set_pool_access(pool, list, count);
}
int cuMemPoolGetAccess(int* flags, void* pool, abi::MemoryLocation* location) {
  return pool_access(flags, pool, location);
}

int cuMemAddressReserve(DevicePointer* pointer, std::size_t bytes, std::size_t alignment, DevicePointer wanted,
                        unsigned long long flags) {
  if (pointer == nullptr || flags != 0) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  return reserve_address(*pointer, bytes, alignment, wanted);
}
int cuMemAddressFree(DevicePointer pointer, std::size_t bytes) { return free_address(pointer, bytes); }
int cuMemCreate(std::uint64_t* handle, std::size_t bytes, const abi::AllocationProperties* properties,
                unsigned long long flags) {
  if (handle == nullptr || properties == nullptr || flags != 0) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  return create_physical(*handle, bytes, *properties);
}
int cuMemRelease(std::uint64_t handle) { return release_physical(handle); }
int cuMemMap(DevicePointer pointer, std::size_t bytes, std::size_t offset, std::uint64_t handle,
             unsigned long long flags) {
  return flags != 0 ? abi::kInvalidValue : map_physical(pointer, bytes, offset, handle);
}
int cuMemUnmap(DevicePointer pointer, std::size_t bytes) { return unmap_physical(pointer, bytes); }
// Every device of the process may reach every mapping: the check is only that there is one.
int cuMemSetAccess(DevicePointer pointer, std::size_t bytes, const abi::MemoryAccess* list, std::size_t count) {
  if (list == nullptr || count == 0) return abi::kInvalidValue;
  return mapped_range(pointer, bytes) ? abi::kSuccess : abi::kInvalidValue;
}
int cuMemGetAccess(unsigned long long* flags, const abi::MemoryLocation* location, DevicePointer pointer) {
  Allocation allocation;
  if (flags == nullptr || location == nullptr) return abi::kInvalidValue;
  if (!find_allocation(to_pointer(pointer), allocation) || !allocation.mapped) return abi::kInvalidValue;
  *flags = 3;
  return abi::kSuccess;
}
int cuMemGetAllocationGranularity(std::size_t* granularity, const abi::AllocationProperties* properties, int option) {
  if (granularity == nullptr || properties == nullptr || option < 0 || option > 1) return abi::kInvalidValue;
  *granularity = kGranule;
  return abi::kSuccess;
}
int cuMemGetAllocationPropertiesFromHandle(abi::AllocationProperties* properties, std::uint64_t handle) {
  return properties == nullptr ? abi::kInvalidValue : physical_properties(handle, *properties);
}
int cuMemRetainAllocationHandle(std::uint64_t* handle, void* pointer) {
  return handle == nullptr ? abi::kInvalidValue : physical_at(*handle, reinterpret_cast<std::uint64_t>(pointer));
}

int cuMemAdvise_v2(DevicePointer pointer, std::size_t, int, abi::MemoryLocation) {
  Allocation allocation;
  return find_allocation(to_pointer(pointer), allocation) && allocation.managed ? abi::kSuccess : abi::kInvalidValue;
}
int cuMemPrefetchAsync_v2(DevicePointer pointer, std::size_t, abi::MemoryLocation, unsigned, void* stream) {
  Allocation allocation;
  if (!find_allocation(to_pointer(pointer), allocation) || !allocation.managed) return abi::kInvalidValue;
  StreamRef ref;
  return resolve_stream(stream, ref);
}

int cuPointerGetAttribute(void* data, int attribute, DevicePointer pointer) {
  if (data == nullptr) return abi::kInvalidValue;
  Allocation allocation;
  HostRange range;
  const bool device = find_allocation(to_pointer(pointer), allocation);
  const bool host = !device && find_host(to_pointer(pointer), range);
  if (!device && !host) {
    if (attribute != 13) return abi::kInvalidValue;
    put(data, 0);
    return abi::kSuccess;
  }
  auto status = abi::kSuccess;
  const int ordinal = device ? std::max(0, ordinal_of(allocation.node_device)) : range.ordinal;
  const std::uint64_t base = device ? allocation.base : range.base;
  const std::uint64_t bytes = device ? allocation.bytes : range.bytes;
  switch (attribute) {
    case 1:
      put<void*>(data, primary_context(ordinal, status));
      break;
    case 2:
      put(data, device ? 2 : 1);
      break;  // CU_MEMORYTYPE_DEVICE, _HOST
    case 3:
      put(data, pointer);
      break;
    case 4:
      if (device && !allocation.managed) return abi::kInvalidValue;
      put(data, pointer);
      break;
    case 6:
      put(data, 0);
      break;
    case 7:
    case 20:
      put<std::uint64_t>(data, device ? allocation.id : base);
      break;
    case 8:
      put(data, device && allocation.managed ? 1 : 0);
      break;
    case 9:
      put(data, ordinal);
      break;
    case 10:
      put(data, 0);
      break;  // IPC is refused
    case 11:
    case 19:
      put(data, base);
      break;
    case 12:
    case 18:
      put(data, bytes);
      break;
    case 13:
      put(data, 1);
      break;
    case 14:
      put<std::uint64_t>(data, 0);
      break;
    case 15:
      put(data, 0);
      break;
    case 16:
      put(data, 3);
      break;
    case 17:
      put<void*>(data, nullptr);
      break;
    case 21:
      put(data, 0);
      break;
    default:
      return abi::kInvalidValue;
  }
  return status;
}
// Unknown attributes and pointers give zeros here, as CUDA documents it.
int cuPointerGetAttributes(unsigned count, int* attributes, void** data, DevicePointer pointer) {
  if (attributes == nullptr || data == nullptr) return abi::kInvalidValue;
  for (unsigned i = 0; i < count; ++i) {
    if (cuPointerGetAttribute(data[i], attributes[i], pointer) == abi::kSuccess) continue;
    const bool is_int =
        attributes[i] == 2 || attributes[i] == 6 || (attributes[i] >= 8 && attributes[i] <= 10) || attributes[i] == 13;
    if (attributes[i] == 9) {
      put(data[i], -2);
    } else if (is_int) {
      put(data[i], 0);
    } else {
      put<std::uint64_t>(data[i], 0);
    }
  }
  return abi::kSuccess;
}
int cuPointerSetAttribute(const void* value, int attribute, DevicePointer pointer) {
  Allocation allocation;
  constexpr int kSyncMemops = 6;
  if (value == nullptr || attribute != kSyncMemops) return abi::kInvalidValue;
  return find_allocation(to_pointer(pointer), allocation) ? abi::kSuccess : abi::kInvalidValue;
}

}  // extern "C"
