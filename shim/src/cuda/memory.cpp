#include "cuda/memory.hpp"

#include <sys/mman.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/range_list.hpp"
#include "cuda/regions.hpp"
#include "cuda/values.hpp"

namespace phantora::cuda {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

struct Chunk {  // one granule shared by small allocations
  std::uintptr_t base;
  RangeList free;
  unsigned live = 0;
};

struct DeviceHeap {
  RangeList free;                          // granules
  std::map<std::uintptr_t, Chunk> chunks;  // by base; first fit in address order
  std::uint64_t allocated = 0;
  bool mapped = false;
};

struct Physical {  // cuMemCreate
  std::uint64_t bytes;
  abi::AllocationProperties properties;
  int node_device;
  unsigned handles = 1;  // cuMemCreate and cuMemRetainAllocationHandle
  std::uintptr_t mapped_at = 0;
};

struct Heaps {
  std::mutex mutex;
  DeviceHeap devices[kMaxDevices];
  std::map<std::uintptr_t, Allocation> allocations;
  std::uint64_t next_id = 1;
  RangeList virtual_free;
  bool virtual_mapped = false;
  std::map<std::uintptr_t, std::uint64_t> reservations;
  std::map<std::uint64_t, Physical> physical;
  std::uint64_t next_physical = 1;
  std::uint64_t charged[kMaxDevices] = {};  // by this process, all kinds but contexts
};

Heaps& heaps() {
  static Heaps* instance = new Heaps;
  return *instance;
}

// cudaMalloc'ed or mapped bytes; also keeps what this process must give back at exit.
bool charge_process(int node_device, std::uint64_t bytes, std::uint64_t requested) {
  if (!charge_memory(node_device, bytes, wire::MemoryKind::kAllocation, requested)) return false;
  heaps().charged[node_device] += bytes;
  return true;
}

void uncharge_process(int node_device, std::uint64_t bytes) {
  heaps().charged[node_device] -= bytes;
  uncharge_memory(node_device, bytes, wire::MemoryKind::kAllocation);
}

bool prepare(DeviceHeap& heap, int node_device) {
  if (heap.mapped) return true;
  Region* region = device_region(node_device);
  if (region == nullptr) return false;
  heap.free.give(region->base, region->bytes);
  heap.mapped = true;
  return true;
}

std::uintptr_t take_small(DeviceHeap& heap, int node_device, std::uint64_t bytes, std::uint64_t requested) {
  for (auto& [base, chunk] : heap.chunks) {
    if (const std::uintptr_t address = chunk.free.take(bytes, kSmallAlign); address != 0) {
      ++chunk.live;
      return address;
    }
  }
  if (!charge_process(node_device, kGranule, requested)) return 0;
  const std::uintptr_t base = heap.free.take(kGranule, kGranule);
  if (base == 0) {
    uncharge_process(node_device, kGranule);
    return 0;
  }
  Chunk& chunk = heap.chunks[base];
  chunk.base = base;
  chunk.free.give(base, kGranule);
  ++chunk.live;
  return chunk.free.take(bytes, kSmallAlign);
}

void mark_out_of_memory(int node_device, std::uint64_t requested) {
  wire::Record record{};
  record.type = wire::RecordType::kMark;
  record.device = static_cast<std::uint8_t>(node_device);
  record.mark.kind = wire::MarkKind::kOutOfMemory;
  record.mark.value = requested;
  client::submit(client::CallKind::kFree, record);
}

void record_memory(int node_device, std::int64_t delta, std::uint64_t used, std::uint64_t requested) {
  wire::Record record{};
  record.type = wire::RecordType::kMemory;
  record.device = static_cast<std::uint8_t>(node_device);
  record.memory.delta_bytes = delta;
  record.memory.used_bytes = used;
  const wire::DeviceState& device = client::device_state(node_device);
  record.memory.other_bytes = device.other_bytes.load(std::memory_order_relaxed);
  record.memory.context_bytes = device.context_bytes.load(std::memory_order_relaxed);
  record.memory.communicator_bytes = device.communicator_bytes.load(std::memory_order_relaxed);
  record.memory.requested_bytes = requested;
  client::submit(client::CallKind::kFree, record);
}

// Adds to the parts of what is used, by kind; takes away where `bytes` is negative.
void add_by_kind(wire::DeviceState& device, wire::MemoryKind kind, std::int64_t bytes) {
  const auto change = static_cast<std::uint64_t>(bytes);  // wraps, as the sums do
  if (kind != wire::MemoryKind::kAllocation) device.other_bytes.fetch_add(change);
  if (kind == wire::MemoryKind::kContext) device.context_bytes.fetch_add(change);
  if (kind == wire::MemoryKind::kCommunicator) device.communicator_bytes.fetch_add(change);
}

}  // namespace

bool charge_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind, std::uint64_t requested) {
  wire::DeviceState& device = client::device_state(node_device);
  std::uint64_t used = device.used_bytes.load(std::memory_order_relaxed);
  do {
    if (bytes > gpu().total_bytes || used > gpu().total_bytes - bytes) {
      mark_out_of_memory(node_device, requested);
      return false;
    }
  } while (!device.used_bytes.compare_exchange_weak(used, used + bytes));
  used += bytes;
  add_by_kind(device, kind, static_cast<std::int64_t>(bytes));
  std::uint64_t peak = device.peak_bytes.load(std::memory_order_relaxed);
  while (peak < used && !device.peak_bytes.compare_exchange_weak(peak, used)) {
  }
  record_memory(node_device, static_cast<std::int64_t>(bytes), used, requested);
  return true;
}

void uncharge_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind) {
  wire::DeviceState& device = client::device_state(node_device);
  const std::uint64_t used = device.used_bytes.fetch_sub(bytes) - bytes;
  add_by_kind(device, kind, -static_cast<std::int64_t>(bytes));
  record_memory(node_device, -static_cast<std::int64_t>(bytes), used, 0);
}

void memory_info(int node_device, std::uint64_t& free_bytes, std::uint64_t& total_bytes) {
  total_bytes = gpu().total_bytes;
  const std::uint64_t used = client::device_state(node_device).used_bytes.load(std::memory_order_relaxed);
  free_bytes = used < total_bytes ? total_bytes - used : 0;
}

std::uint64_t allocated_bytes(int node_device) {
  std::lock_guard lock(heaps().mutex);
  return heaps().devices[node_device].allocated;
}

Status allocate(void*& pointer, std::uint64_t bytes, int node_device, bool managed) {
  pointer = nullptr;
  if (bytes == 0) return abi::kSuccess;  // as cudaMalloc
  client::charge(client::CallKind::kMalloc);
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  DeviceHeap& heap = h.devices[node_device];
  if (!prepare(heap, node_device)) return abi::kOutOfMemory;
  std::uintptr_t address = 0;
  if (bytes < kSmallLimit) {
    address = take_small(heap, node_device, round_up(bytes, kSmallAlign), bytes);
  } else {
    if (bytes > gpu().total_bytes) {
      mark_out_of_memory(node_device, bytes);
      return abi::kOutOfMemory;
    }
    const std::uint64_t rounded = round_up(bytes, kGranule);
    if (!charge_process(node_device, rounded, bytes)) return abi::kOutOfMemory;
    address = heap.free.take(rounded, kGranule);
    if (address == 0) uncharge_process(node_device, rounded);
  }
  if (address == 0) return abi::kOutOfMemory;
  heap.allocated += bytes;
  h.allocations[address] = {address, bytes, node_device, managed, false, h.next_id++};
  pointer = reinterpret_cast<void*>(address);
  return abi::kSuccess;
}

Status release(void* pointer, bool wait) {
  if (pointer == nullptr) return abi::kSuccess;
  Heaps& h = heaps();
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Allocation allocation;
  {
    std::lock_guard lock(h.mutex);
    const auto found = h.allocations.find(address);
    if (found == h.allocations.end() || found->second.mapped) return abi::kInvalidValue;
    allocation = found->second;
  }
  client::charge(client::CallKind::kFreeMemory);
  if (wait) client::wait_device(allocation.node_device);
  mark_unknown_in_order(pointer, allocation.bytes);
  std::lock_guard lock(h.mutex);
  if (h.allocations.erase(address) == 0) return abi::kInvalidValue;
  DeviceHeap& heap = h.devices[allocation.node_device];
  heap.allocated -= allocation.bytes;
  if (allocation.managed) {  // the host may have written anywhere
    const std::uintptr_t first = round_up(address, kPage);
    const std::uintptr_t last = (address + allocation.bytes) / kPage * kPage;
    if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
  if (allocation.bytes >= kSmallLimit) {
    const std::uint64_t rounded = round_up(allocation.bytes, kGranule);
    heap.free.give(address, rounded);
    uncharge_process(allocation.node_device, rounded);
    return abi::kSuccess;
  }
  const auto chunk = heap.chunks.find(address / kGranule * kGranule);
  chunk->second.free.give(address, round_up(allocation.bytes, kSmallAlign));
  if (--chunk->second.live == 0) {
    heap.free.give(chunk->first, kGranule);
    heap.chunks.erase(chunk);
    uncharge_process(allocation.node_device, kGranule);
  }
  return abi::kSuccess;
}

bool find_allocation(const void* pointer, Allocation& allocation) {
  if (!device_address(pointer)) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  auto found = h.allocations.upper_bound(address);
  if (found == h.allocations.begin()) return false;
  --found;
  if (address - found->first >= found->second.bytes) return false;
  allocation = found->second;
  return true;
}

Status reserve_address(std::uint64_t& address, std::uint64_t bytes, std::uint64_t alignment, std::uint64_t wanted) {
  (void)wanted;  // a hint that CUDA may ignore too
  if (bytes == 0 || bytes % kGranule != 0 || (alignment & (alignment - 1)) != 0) return abi::kInvalidValue;
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  if (!h.virtual_mapped) {
    Region* region = virtual_region();
    if (region == nullptr) return abi::kOutOfMemory;
    h.virtual_free.give(region->base, region->bytes);
    h.virtual_mapped = true;
  }
  const std::uintptr_t base = h.virtual_free.take(bytes, std::max(alignment, kGranule));
  if (base == 0) return abi::kOutOfMemory;
  h.reservations[base] = bytes;
  address = base;
  return abi::kSuccess;
}

Status free_address(std::uint64_t address, std::uint64_t bytes) {
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  const auto found = h.reservations.find(address);
  if (found == h.reservations.end() || found->second != bytes) return abi::kInvalidValue;
  const auto mapped = h.allocations.lower_bound(address);
  if (mapped != h.allocations.end() && mapped->first < address + bytes) return abi::kInvalidValue;
  h.virtual_free.give(address, bytes);
  h.reservations.erase(found);
  return abi::kSuccess;
}

Status create_physical(std::uint64_t& handle, std::uint64_t bytes, const abi::AllocationProperties& properties) {
  constexpr int kPinned = 1, kOnDevice = 1;
  if (bytes == 0 || bytes % kGranule != 0 || properties.type != kPinned) return abi::kInvalidValue;
  if (properties.location.type != kOnDevice) return abi::kNotSupported;
  if (properties.location.id < 0 || properties.location.id >= visible_count()) return abi::kInvalidDevice;
  client::charge(client::CallKind::kMalloc);
  const int node_device = node_device_of(properties.location.id);
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  if (!charge_process(node_device, bytes, bytes)) return abi::kOutOfMemory;
  handle = h.next_physical++;
  h.physical[handle] = {bytes, properties, node_device, 1, 0};
  return abi::kSuccess;
}

namespace {

void drop_physical(Heaps& h, std::map<std::uint64_t, Physical>::iterator found) {
  if (found->second.handles != 0 || found->second.mapped_at != 0) return;
  uncharge_process(found->second.node_device, found->second.bytes);
  h.physical.erase(found);
}

}  // namespace

Status release_physical(std::uint64_t handle) {
  client::charge(client::CallKind::kFreeMemory);
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  const auto found = h.physical.find(handle);
  if (found == h.physical.end() || found->second.handles == 0) return abi::kInvalidValue;
  --found->second.handles;
  drop_physical(h, found);
  return abi::kSuccess;
}

Status map_physical(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset, std::uint64_t handle) {
  Heaps& h = heaps();
  std::lock_guard lock(h.mutex);
  const auto found = h.physical.find(handle);
  if (found == h.physical.end() || bytes == 0 || offset != 0 || bytes != found->second.bytes) return abi::kInvalidValue;
  auto reservation = h.reservations.upper_bound(address);
  if (reservation == h.reservations.begin()) return abi::kInvalidValue;
  --reservation;
  if (address + bytes > reservation->first + reservation->second) return abi::kInvalidValue;
  auto next = h.allocations.lower_bound(address);
  if (next != h.allocations.end() && next->first < address + bytes) return abi::kInvalidValue;
  if (found->second.mapped_at != 0) {
    client::note("unsupported", "cuMemMap of one allocation at two addresses");
    return abi::kNotSupported;
  }
  found->second.mapped_at = address;
  h.allocations[address] = {address, bytes, found->second.node_device, false, true, handle};
  return abi::kSuccess;
}

Status unmap_physical(std::uint64_t address, std::uint64_t bytes) {
  Heaps& h = heaps();
  std::uint64_t end = address;
  int node_device = 0;
  {
    std::lock_guard lock(h.mutex);
    // Whole mappings only, without gaps.
    while (end < address + bytes) {
      const auto found = h.allocations.find(end);
      if (found == h.allocations.end() || !found->second.mapped) return abi::kInvalidValue;
      node_device = found->second.node_device;
      end += found->second.bytes;
    }
  }
  if (end != address + bytes || bytes == 0) return abi::kInvalidValue;
  client::wait_device(node_device);
  mark_unknown_in_order(reinterpret_cast<void*>(address), bytes);
  std::lock_guard lock(h.mutex);
  for (std::uint64_t at = address; at < end;) {
    const auto found = h.allocations.find(at);
    if (found == h.allocations.end()) return abi::kInvalidValue;
    const Allocation mapping = found->second;
    h.allocations.erase(found);
    if (const auto physical = h.physical.find(mapping.id); physical != h.physical.end()) {
      physical->second.mapped_at = 0;
      drop_physical(h, physical);
    }
    at += mapping.bytes;
  }
  return abi::kSuccess;
}

Status physical_properties(std::uint64_t handle, abi::AllocationProperties& properties) {
  std::lock_guard lock(heaps().mutex);
  const auto found = heaps().physical.find(handle);
  if (found == heaps().physical.end()) return abi::kInvalidValue;
  properties = found->second.properties;
  return abi::kSuccess;
}

Status physical_at(std::uint64_t& handle, std::uint64_t address) {
  Allocation allocation;
  if (!find_allocation(reinterpret_cast<void*>(address), allocation) || !allocation.mapped) return abi::kInvalidValue;
  std::lock_guard lock(heaps().mutex);
  const auto found = heaps().physical.find(allocation.id);
  if (found == heaps().physical.end()) return abi::kInvalidValue;
  ++found->second.handles;
  handle = allocation.id;
  return abi::kSuccess;
}

bool mapped_range(std::uint64_t address, std::uint64_t bytes) {
  for (std::uint64_t at = address; at < address + bytes;) {
    Allocation allocation;
    if (!find_allocation(reinterpret_cast<void*>(at), allocation) || !allocation.mapped) return false;
    at = allocation.base + allocation.bytes;
  }
  return bytes != 0;
}

// Without the lock: at the end of a process another thread may hold it for good.
void release_memory() {
  Heaps& h = heaps();
  for (int device = 0; device < kMaxDevices; ++device) {
    if (h.charged[device] == 0) continue;
    client::device_state(device).used_bytes.fetch_sub(h.charged[device]);
    h.charged[device] = 0;
  }
}

void forget_memory_in_child() {
  Heaps& h = heaps();
  new (&h.mutex) std::mutex;
  for (std::uint64_t& bytes : h.charged) bytes = 0;
}

}  // namespace phantora::cuda
