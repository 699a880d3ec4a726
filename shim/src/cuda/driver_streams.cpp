// CUDA driver: streams and events. The runtime's functions do the same with the same handles; only the runtime's last
// error is left alone here.
#include <memory>
#include <utility>

#include "cuda/copies.hpp"
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

int cuStreamCreate(void** stream, unsigned flags) {
  return stream == nullptr ? abi::kInvalidValue : create_stream(*stream, flags, 0);
}
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return stream == nullptr ? abi::kInvalidValue : create_stream(*stream, flags, priority);
}
int cuStreamDestroy_v2(void* stream) { return destroy_stream(stream); }
int cuStreamSynchronize(void* stream) { return wait_stream(stream); }
int cuStreamQuery(void* stream) { return query_stream(stream); }
int cuStreamWaitEvent(void* stream, void* event, unsigned) { return wait_event_on_stream(stream, event); }

int cuStreamGetPriority(void* stream, int* priority) {
  if (priority == nullptr) return abi::kInvalidValue;
  if (const int status = check_stream(stream); status != abi::kSuccess) return status;
  const Stream* found = find_stream(stream);
  *priority = found == nullptr ? 0 : found->priority;
  return abi::kSuccess;
}
int cuStreamGetFlags(void* stream, unsigned* flags) {
  if (flags == nullptr) return abi::kInvalidValue;
  if (const int status = check_stream(stream); status != abi::kSuccess) return status;
  const Stream* found = find_stream(stream);
  *flags = found == nullptr ? 0 : found->flags;
  return abi::kSuccess;
}
int cuStreamGetId(void* stream, unsigned long long* id) {
  if (id == nullptr) return abi::kInvalidValue;
  if (const int status = check_stream(stream); status != abi::kSuccess) return status;
  const Stream* found = find_stream(stream);
  *id = found == nullptr ? static_cast<unsigned long long>(abi::kLegacyStream) : found->id;
  return abi::kSuccess;
}
int cuStreamGetDevice(void* stream, int* device) {
  if (device == nullptr) return abi::kInvalidValue;
  if (const int status = check_stream(stream); status != abi::kSuccess) return status;
  const Stream* found = find_stream(stream);
  *device = found == nullptr ? current_ordinal() : found->ordinal_device;
  return abi::kSuccess;
}
int cuStreamGetCtx(void* stream, void** context) {
  int device = 0;
  if (const int status = cuStreamGetDevice(stream, &device); status != abi::kSuccess) return status;
  if (context == nullptr) return abi::kInvalidValue;
  auto status = abi::kSuccess;
  *context = primary_context(device, status);
  return status;
}
int cuStreamGetCtx_v2(void* stream, void** context, void** green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(stream, context);
}
int cuStreamAttachMemAsync(void* stream, std::uint64_t pointer, std::size_t, unsigned) {
  Allocation allocation;
  if (!find_allocation(reinterpret_cast<void*>(pointer), allocation) || !allocation.managed) return abi::kInvalidValue;
  return check_stream(stream);
}

int cuStreamIsCapturing(void* stream, int* status) {
  if (status == nullptr) return abi::kInvalidValue;
  *status = 0;
  return check_stream(stream);
}
int cuStreamGetCaptureInfo_v2(void* stream, int* status, std::uint64_t* id, void** graph, const void** dependencies,
                              std::size_t* count) {
  if (status == nullptr) return abi::kInvalidValue;
  *status = 0;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return check_stream(stream);
}
int cuStreamGetCaptureInfo_v3(void* stream, int* status, std::uint64_t* id, void** graph, const void** dependencies,
                              const void** edges, std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  if (mode == nullptr || *mode < 0 || *mode > 2) return abi::kInvalidValue;
  std::swap(*mode, current);
  return abi::kSuccess;
}

int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return add_host_function(stream, function, data);
}
int cuStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned flags) {
  if (function == nullptr || flags != 0) return abi::kInvalidValue;
  auto callback = std::make_unique<Callback>(Callback{function, stream, data});
  const int status = add_host_function(stream, &run_callback, callback.get());
  if (status == abi::kSuccess) callback.release();
  return status;
}

int cuEventCreate(void** event, unsigned flags) {
  return event == nullptr ? abi::kInvalidValue : create_event(*event, flags);
}
int cuEventDestroy_v2(void* event) { return destroy_event(event); }
int cuEventRecord(void* event, void* stream) { return record_event(event, stream); }
int cuEventRecordWithFlags(void* event, void* stream, unsigned) { return record_event(event, stream); }
int cuEventQuery(void* event) { return query_event(event); }
int cuEventSynchronize(void* event) { return wait_event(event); }
int cuEventElapsedTime_v2(float* ms, void* start, void* end) {
  return ms == nullptr ? abi::kInvalidValue : elapsed_ms(*ms, start, end);
}
int cuEventElapsedTime(float* ms, void* start, void* end) { return cuEventElapsedTime_v2(ms, start, end); }

}  // extern "C"
