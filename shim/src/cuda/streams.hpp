// Streams and events: handles on one side, the ordinals that records carry on the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "client.hpp"
#include "cuda/state.hpp"

namespace phantora::cuda {

struct StreamRef {
  int node_device = 0;
  std::uint16_t ordinal = 0;  // 0: the legacy default stream of the device
};

struct Stream {
  int node_device = 0;
  int ordinal_device = 0;
  std::uint16_t ordinal = 0;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
};

struct Event {
  std::uint32_t id = 0;
  std::uint32_t generation = 0;  // of the last record
  bool recorded = false;         // since it was created
  unsigned flags = 0;
  int ordinal_device = 0;
  StreamRef stream;  // of the last record
};

// Handles are checked: nullptr, 1 and 2 are the default streams; kInvalidHandle for anything that is not alive.
Status resolve_stream(void* handle, StreamRef& stream);
Stream* find_stream(void* handle);  // nullptr for default streams and invalid handles
bool default_stream(void* handle);
Status create_stream(void*& handle, unsigned flags, int priority);
Status destroy_stream(void* handle);
Status wait_stream(void* handle);
Status query_stream(void* handle);
Status wait_current_device();

// Puts a device op on the stream: fills device and stream of the record, orders it against the legacy default stream
// where blocking streams are in use, and submits it. Every device op of every library goes through here.
Status enqueue(void* handle, client::CallKind kind, wire::Record& record);

Status create_event(void*& handle, unsigned flags);
Status destroy_event(void* handle);
Status record_event(void* handle, void* stream);
Status wait_event_on_stream(void* stream, void* event);
Status query_event(void* handle);
Status wait_event(void* handle);
Status elapsed_ms(float& ms, void* start, void* end);

}  // namespace phantora::cuda
