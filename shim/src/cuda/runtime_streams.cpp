// CUDA runtime: streams, events, host functions, and what a stream says of captures (graphs are not supported yet).
#include <memory>

#include "cuda/copies.hpp"
#include "cuda/errors.hpp"
#include "cuda/memory.hpp"
#include "cuda/streams.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

int check_stream(void* stream) {
  StreamRef ref;
  return resolve_stream(stream, ref);
}

struct Callback {
  void (*function)(void*, int, void*);
  void* stream;
  void* data;
};

void run_callback(void* context) {
  std::unique_ptr<Callback> callback(static_cast<Callback*>(context));
  callback->function(callback->stream, abi::kSuccess, callback->data);
}

}  // namespace

extern "C" {

int cudaStreamCreate(void** stream) {
  return stream == nullptr ? keep(abi::kInvalidValue) : keep(create_stream(*stream, 0, 0));
}
int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return stream == nullptr ? keep(abi::kInvalidValue) : keep(create_stream(*stream, flags, 0));
}
int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return stream == nullptr ? keep(abi::kInvalidValue) : keep(create_stream(*stream, flags, priority));
}
int cudaStreamDestroy(void* stream) { return keep(destroy_stream(stream)); }
int cudaStreamSynchronize(void* stream) { return keep(wait_stream(stream)); }
int cudaStreamQuery(void* stream) { return keep(query_stream(stream)); }

int cudaStreamGetPriority(void* stream, int* priority) {
  if (priority == nullptr) return keep(abi::kInvalidValue);
  if (const int status = check_stream(stream); status != abi::kSuccess) return keep(status);
  const Stream* found = find_stream(stream);
  *priority = found == nullptr ? 0 : found->priority;
  return abi::kSuccess;
}
int cudaStreamGetFlags(void* stream, unsigned* flags) {
  if (flags == nullptr) return keep(abi::kInvalidValue);
  if (const int status = check_stream(stream); status != abi::kSuccess) return keep(status);
  const Stream* found = find_stream(stream);
  *flags = found == nullptr ? 0 : found->flags;
  return abi::kSuccess;
}
int cudaStreamGetId(void* stream, unsigned long long* id) {
  if (id == nullptr) return keep(abi::kInvalidValue);
  if (const int status = check_stream(stream); status != abi::kSuccess) return keep(status);
  const Stream* found = find_stream(stream);
  *id = found == nullptr ? static_cast<unsigned long long>(abi::kLegacyStream) : found->id;
  return abi::kSuccess;
}
int cudaStreamGetDevice(void* stream, int* device) {
  if (device == nullptr) return keep(abi::kInvalidValue);
  if (const int status = check_stream(stream); status != abi::kSuccess) return keep(status);
  const Stream* found = find_stream(stream);
  *device = found == nullptr ? current_ordinal() : found->ordinal_device;
  return abi::kSuccess;
}

int cudaStreamWaitEvent(void* stream, void* event, unsigned) { return keep(wait_event_on_stream(stream, event)); }

int cudaStreamAttachMemAsync(void* stream, void* pointer, std::size_t, unsigned) {
  Allocation allocation;
  if (!find_allocation(pointer, allocation) || !allocation.managed) return keep(abi::kInvalidValue);
  return keep(check_stream(stream));
}

int cudaEventCreateWithFlags(void** event, unsigned flags) {
  return event == nullptr ? keep(abi::kInvalidValue) : keep(create_event(*event, flags));
}
int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(void* event) { return keep(destroy_event(event)); }
int cudaEventRecord(void* event, void* stream) { return keep(record_event(event, stream)); }
int cudaEventRecordWithFlags(void* event, void* stream, unsigned) { return keep(record_event(event, stream)); }
int cudaEventQuery(void* event) { return keep(query_event(event)); }
int cudaEventSynchronize(void* event) { return keep(wait_event(event)); }
int cudaEventElapsedTime(float* ms, void* start, void* end) {
  return ms == nullptr ? keep(abi::kInvalidValue) : keep(elapsed_ms(*ms, start, end));
}

int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return keep(add_host_function(stream, function, data));
}

int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned flags) {
  if (function == nullptr || flags != 0) return keep(abi::kInvalidValue);
  auto callback = std::make_unique<Callback>(Callback{function, stream, data});
  const int status = add_host_function(stream, &run_callback, callback.get());
  if (status == abi::kSuccess) callback.release();
  return keep(status);
}

int cudaStreamIsCapturing(void* stream, int* status) {
  if (status == nullptr) return keep(abi::kInvalidValue);
  *status = 0;
  return keep(check_stream(stream));
}

int cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph, const void** dependencies,
                             const void** edges, std::size_t* count) {
  if (status == nullptr) return keep(abi::kInvalidValue);
  *status = 0;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return keep(check_stream(stream));
}

// Swaps the thread's mode with the caller's; no capture ever looks at it.
int cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  if (mode == nullptr || *mode < 0 || *mode > 2) return keep(abi::kInvalidValue);
  std::swap(*mode, current);
  return abi::kSuccess;
}

}  // extern "C"
