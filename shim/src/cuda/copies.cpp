#include "cuda/copies.hpp"

#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/memory.hpp"
#include "cuda/streams.hpp"
#include "cuda/values.hpp"
#include "libs/values.hpp"

namespace phantora::cuda {
namespace {

using wire::CopyKind;

std::size_t span(std::size_t width, std::size_t rows, std::size_t pitch, std::size_t planes, std::size_t plane) {
  return (planes - 1) * plane + (rows - 1) * pitch + width;
}

template <typename Use>
void each_row(const Copy& c, Use use) {
  for (std::size_t z = 0; z < c.planes; ++z) {
    for (std::size_t y = 0; y < c.rows; ++y) {
      use(static_cast<char*>(c.target) + z * c.target_plane + y * c.target_pitch,
          static_cast<const char*>(c.source) + z * c.source_plane + y * c.source_pitch);
    }
  }
}

struct CopyAction {
  Copy copy;
  CopyKind kind;
  bool real;                   // up to kCopyLimit
  std::vector<char> snapshot;  // host bytes at the time of the call, when the action had to wait
};

void transfer(const CopyAction& action) {
  const Copy& c = action.copy;
  switch (action.kind) {
    case CopyKind::kHostToDevice: {
      const char* from = action.snapshot.data();
      const bool kept = !action.snapshot.empty();
      each_row(c, [&](char* target, const char* source) {
        if (!action.real) {
          mark_unknown(target, c.width);
        } else {
          write_device(target, kept ? from : source, c.width);
          from += kept ? c.width : 0;
        }
      });
      return;
    }
    case CopyKind::kDeviceToHost:
      each_row(c, [&](char* target, const char* source) { read_device(target, source, c.width); });
      return;
    case CopyKind::kHostToHost:
      each_row(c, [&](char* target, const char* source) { std::memmove(target, source, c.width); });
      return;
    default:
      each_row(c, [&](char* target, const char* source) { copy_known(target, source, c.width); });
  }
}

bool run_copy(void* context) {
  transfer(*static_cast<CopyAction*>(context));
  return true;
}
void destroy_copy(void* context) { delete static_cast<CopyAction*>(context); }

void move_bytes(const Copy& c, CopyKind kind, std::size_t bytes) {
  CopyAction action{c, kind, bytes <= kCopyLimit, {}};
  if (!values::pending()) {
    transfer(action);
    return;
  }
  auto* queued = new CopyAction(std::move(action));
  if (kind == CopyKind::kHostToDevice && queued->real) {
    queued->snapshot.reserve(bytes);
    each_row(c, [&](char*, const char* source) {
      queued->snapshot.insert(queued->snapshot.end(), source, source + c.width);
    });
  }
  values::Access access;
  access.writes[0] = values::range(c.target, span(c.width, c.rows, c.target_pitch, c.planes, c.target_plane));
  if (kind != CopyKind::kHostToDevice) {
    access.reads[0] = values::range(c.source, span(c.width, c.rows, c.source_pitch, c.planes, c.source_plane));
  }
  access.host_visible = kind == CopyKind::kDeviceToHost || kind == CopyKind::kHostToHost;
  values::run(&run_copy, &destroy_copy, queued, access);
}

struct FillAction {
  void* target;
  std::uint32_t pattern;
  unsigned pattern_bytes;
  std::size_t width, rows, pitch;
};

void write_fill(const FillAction& f) {
  for (std::size_t y = 0; y < f.rows; ++y) {
    fill_device(static_cast<char*>(f.target) + y * f.pitch, f.pattern, f.pattern_bytes, f.width);
  }
}

struct HostFunction {
  int node_device;
  int stream;
  void (*function)(void*);
  void* data;
};

struct HostFunctions {
  std::mutex mutex;
  std::deque<HostFunction> pending;
  std::atomic<std::size_t> count{0};
};

HostFunctions& host_functions() {
  static HostFunctions* instance = new HostFunctions;
  return *instance;
}

}  // namespace

void mark_unknown_in_order(void* pointer, std::size_t bytes) {
  if (!values::pending()) {
    mark_unknown(pointer, bytes);
    return;
  }
  values::Access access;
  access.writes[0] = values::range(pointer, bytes);
  values::run(
      [](void* context) {
        const auto* range = static_cast<values::Range*>(context);
        mark_unknown(reinterpret_cast<void*>(range->begin), range->bytes);
        return true;
      },
      [](void* context) { delete static_cast<values::Range*>(context); }, new values::Range(access.writes[0]), access);
}

Status copy(const Copy& what, int kind, void* stream, Blocking blocking) {
  if (kind < abi::kHostToHost || kind > abi::kDefault) return abi::kInvalidMemcpyDirection;
  if (const Status status = ready(); status != abi::kSuccess) return status;
  const std::size_t bytes = what.width * what.rows * what.planes;
  if (bytes == 0) return abi::kSuccess;
  if (what.target == nullptr || what.source == nullptr) return abi::kInvalidValue;
  Allocation to, from;
  const bool to_device = find_allocation(what.target, to);
  const bool from_device = find_allocation(what.source, from);
  // An address of the device that belongs to no allocation, or a host address where the caller promised a device one.
  if (!to_device && (device_address(what.target) || kind == abi::kHostToDevice || kind == abi::kDeviceToDevice)) {
    return abi::kInvalidValue;
  }
  if (!from_device && (device_address(what.source) || kind == abi::kDeviceToHost || kind == abi::kDeviceToDevice)) {
    return abi::kInvalidValue;
  }
  wire::Record record{};
  record.type = wire::RecordType::kMemcpy;
  record.copy.bytes = bytes;
  bool pinned_host = true;
  if (to_device && from_device) {
    record.copy.kind = to.node_device == from.node_device ? CopyKind::kDeviceToDevice : CopyKind::kPeer;
    StreamRef ref;
    if (const Status status = resolve_stream(stream, ref); status != abi::kSuccess) return status;
    record.copy.peer_device =
        static_cast<std::uint8_t>(to.node_device == ref.node_device ? from.node_device : to.node_device);
  } else if (to_device) {
    record.copy.kind = CopyKind::kHostToDevice;
    pinned_host = pinned(what.source);
  } else if (from_device) {
    record.copy.kind = CopyKind::kDeviceToHost;
    pinned_host = pinned(what.target);
  } else {
    record.copy.kind = CopyKind::kHostToHost;
    pinned_host = pinned(what.source) && pinned(what.target);
  }
  record.copy.pinned = pinned_host ? 1 : 0;
  if (const Status status = enqueue(stream, client::CallKind::kMemcpy, record); status != abi::kSuccess) return status;
  move_bytes(what, record.copy.kind, bytes);
  const bool host_side = record.copy.kind != CopyKind::kDeviceToDevice && record.copy.kind != CopyKind::kPeer;
  const bool must_wait = record.copy.kind == CopyKind::kDeviceToHost && !pinned_host;
  if (must_wait || (blocking == Blocking::kYes && host_side)) return wait_stream(stream);
  return abi::kSuccess;
}

Status fill(void* target, std::uint32_t pattern, unsigned pattern_bytes, std::size_t width, std::size_t rows,
            std::size_t pitch, void* stream) {
  if (const Status status = ready(); status != abi::kSuccess) return status;
  if (width * rows == 0) return abi::kSuccess;
  Allocation allocation;
  if (!find_allocation(target, allocation)) {
    if (!pinned(target)) return abi::kInvalidValue;
  }
  wire::Record record{};
  record.type = wire::RecordType::kMemset;
  record.copy.bytes = width * rows;
  if (const Status status = enqueue(stream, client::CallKind::kMemset, record); status != abi::kSuccess) return status;
  if (rows == 1) pitch = width;
  if (!device_address(target)) {
    for (std::size_t y = 0; y < rows; ++y)
      std::memset(static_cast<char*>(target) + y * pitch, static_cast<int>(pattern & 0xff), width);
    return abi::kSuccess;
  }
  const FillAction action{target, pattern, pattern_bytes, width, rows, pitch};
  if (!values::pending()) {
    write_fill(action);
    return abi::kSuccess;
  }
  values::Access access;
  access.writes[0] = values::range(target, (rows - 1) * pitch + width);
  values::run(
      [](void* context) {
        write_fill(*static_cast<FillAction*>(context));
        return true;
      },
      [](void* context) { delete static_cast<FillAction*>(context); }, new FillAction(action), access);
  return abi::kSuccess;
}

Status add_host_function(void* stream, void (*function)(void*), void* data) {
  if (function == nullptr) return abi::kInvalidValue;
  StreamRef ref;
  if (const Status status = resolve_stream(stream, ref); status != abi::kSuccess) return status;
  HostFunctions& h = host_functions();
  std::lock_guard lock(h.mutex);
  h.pending.push_back({ref.node_device, ref.ordinal, function, data});
  h.count.store(h.pending.size());
  return abi::kSuccess;
}

void run_host_functions(int node_device, int stream) {
  HostFunctions& h = host_functions();
  while (h.count.load(std::memory_order_relaxed) != 0) {
    std::unique_lock lock(h.mutex);
    auto it = h.pending.begin();
    while (it != h.pending.end() && (it->node_device != node_device || (stream >= 0 && it->stream != stream))) ++it;
    if (it == h.pending.end()) return;
    const HostFunction next = *it;
    h.pending.erase(it);
    h.count.store(h.pending.size());
    lock.unlock();
    next.function(next.data);
  }
}

}  // namespace phantora::cuda
