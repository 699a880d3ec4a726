// CUDA runtime: device and host memory, pools, pointers.
#include <algorithm>
#include <cstring>

#include "cuda/errors.hpp"
#include "cuda/memory.hpp"
#include "cuda/pools.hpp"
#include "cuda/state.hpp"
#include "cuda/streams.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

extern "C" {

int cudaMalloc(void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return keep(abi::kInvalidValue);
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(allocate(*pointer, bytes, current_node_device()));
}

int cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  if (pitch == nullptr) return keep(abi::kInvalidValue);
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}

int cudaMalloc3D(abi::PitchedPointer* result, abi::Extent extent) {
  if (result == nullptr) return keep(abi::kInvalidValue);
  result->xsize = extent.width;
  result->ysize = extent.height;
  return cudaMallocPitch(&result->ptr, &result->pitch, extent.width, extent.height * extent.depth);
}

int cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0 || (flags != 1 && flags != 2)) return keep(abi::kInvalidValue);
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(allocate(*pointer, bytes, current_node_device(), true));
}

int cudaFree(void* pointer) {
  // cudaFree(0) is the traditional way to make a context.
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(release(pointer));
}

int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  std::uint64_t available = 0, total = 0;
  memory_info(current_node_device(), available, total);
  if (free_bytes != nullptr) *free_bytes = available;
  if (total_bytes != nullptr) *total_bytes = total;
  return abi::kSuccess;
}

int cudaMemAdvise(const void* pointer, std::size_t, int, abi::MemoryLocation) {
  Allocation allocation;
  return keep(find_allocation(pointer, allocation) && allocation.managed ? abi::kSuccess : abi::kInvalidValue);
}

int cudaMemPrefetchAsync(const void* pointer, std::size_t, abi::MemoryLocation, unsigned, void* stream) {
  Allocation allocation;
  if (!find_allocation(pointer, allocation) || !allocation.managed) return keep(abi::kInvalidValue);
  StreamRef ref;
  return keep(resolve_stream(stream, ref));  // where managed memory lies is not modelled
}

int cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  if (pointer == nullptr || (flags & ~7U) != 0) return keep(abi::kInvalidValue);
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(allocate_host(*pointer, bytes, flags));
}
int cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

int cudaFreeHost(void* pointer) {
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(free_host(pointer));
}

int cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(register_host(pointer, bytes, flags));
}
int cudaHostUnregister(void* pointer) { return keep(unregister_host(pointer)); }

int cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  HostRange range;
  if (device == nullptr || flags != 0 || !find_host(host, range)) return keep(abi::kInvalidValue);
  *device = host;
  return abi::kSuccess;
}

int cudaHostGetFlags(unsigned* flags, void* host) {
  HostRange range;
  if (flags == nullptr || !find_host(host, range)) return keep(abi::kInvalidValue);
  *flags = range.flags | 2;  // mapped: always, with unified addressing
  return abi::kSuccess;
}

int cudaPointerGetAttributes(abi::PointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr) return keep(abi::kInvalidValue);
  std::memset(attributes, 0, sizeof *attributes);
  void* address = const_cast<void*>(pointer);
  Allocation allocation;
  HostRange range;
  if (find_allocation(pointer, allocation)) {
    attributes->type = allocation.managed ? abi::kManaged : abi::kDevice;
    attributes->device = std::max(0, ordinal_of(allocation.node_device));
    attributes->devicePointer = address;
    attributes->hostPointer = allocation.managed ? address : nullptr;
  } else if (find_host(pointer, range)) {
    attributes->type = abi::kHost;
    attributes->device = range.ordinal;
    attributes->devicePointer = attributes->hostPointer = address;
  } else {
    attributes->type = abi::kUnregistered;
    attributes->device = -2;  // cudaInvalidDeviceId
    attributes->hostPointer = address;
  }
  return abi::kSuccess;
}

int cudaMallocAsync(void** pointer, std::size_t bytes, void* stream) {
  return keep(pool_allocate(pointer, bytes, nullptr, stream));
}
int cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, void* pool, void* stream) {
  if (pool == nullptr) return keep(abi::kInvalidValue);
  return keep(pool_allocate(pointer, bytes, pool, stream));
}
int cudaFreeAsync(void* pointer, void* stream) { return keep(pool_free(pointer, stream)); }
int cudaDeviceGetDefaultMemPool(void** pool, int device) { return keep(default_pool(pool, device)); }
int cudaDeviceGetMemPool(void** pool, int device) { return keep(current_pool(pool, device)); }
int cudaDeviceSetMemPool(int device, void* pool) { return keep(set_current_pool(device, pool)); }
int cudaMemPoolCreate(void** pool, const abi::PoolProperties* properties) {
  return keep(create_pool(pool, properties));
}
int cudaMemPoolDestroy(void* pool) { return keep(destroy_pool(pool)); }
int cudaMemPoolTrimTo(void* pool, std::size_t) { return keep(valid_pool(pool) ? abi::kSuccess : abi::kInvalidValue); }
int cudaMemPoolGetAttribute(void* pool, int attribute, void* value) {
  return keep(pool_attribute(pool, attribute, value));
}
int cudaMemPoolSetAttribute(void* pool, int attribute, void* value) {
  return keep(set_pool_attribute(pool, attribute, value));
}
int cudaMemPoolSetAccess(void* pool, const abi::MemoryAccess* list, std::size_t count) {
  return keep(set_pool_access(pool, list, count));
}
int cudaMemPoolGetAccess(int* flags, void* pool, abi::MemoryLocation* location) {
  return keep(pool_access(flags, pool, location));
}
// Graph memory: no graph ever holds any.
int cudaDeviceGetGraphMemAttribute(int, int attribute, void* value) {
  if (value == nullptr || attribute < 0 || attribute > 3) return keep(abi::kInvalidValue);
  std::memset(value, 0, 8);
  return abi::kSuccess;
}
int cudaDeviceSetGraphMemAttribute(int, int attribute, void*) {
  return keep(attribute == 1 || attribute == 3 ? abi::kSuccess : abi::kInvalidValue);
}
int cudaDeviceGraphMemTrim(int) { return abi::kSuccess; }

}  // extern "C"
