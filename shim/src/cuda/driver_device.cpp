// CUDA driver: initialisation, devices, contexts, errors, entry points.
#include <cstdio>
#include <cstring>

#include "cuda/errors.hpp"
#include "cuda/state.hpp"
#include "cuda/streams.hpp"
#include "phantora/table.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

bool known_ordinal(int device) { return device >= 0 && device < visible_count(); }
Context* as_context(void* handle) { return static_cast<Context*>(handle); }
std::size_t limits[] = {1024, 7 << 20, 8 << 20, 2, 2048, 128, 0};

}  // namespace

extern "C" {

int cuInit(unsigned flags) { return flags != 0 ? abi::kInvalidValue : initialise(); }

int cuDriverGetVersion(int* version) {
  if (version == nullptr) return abi::kInvalidValue;
  *version = phantora::client::header() == nullptr ? 0 : static_cast<int>(gpu().driver_version);
  return abi::kSuccess;
}

int cuDeviceGetCount(int* count) {
  if (count == nullptr) return abi::kInvalidValue;
  const auto status = initialise();
  *count = status == abi::kSuccess ? visible_count() : 0;
  return status == abi::kNoDevice ? abi::kSuccess : status;
}

int cuDeviceGet(int* device, int ordinal) {
  if (device == nullptr) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  if (!known_ordinal(ordinal)) return abi::kInvalidDevice;
  *device = ordinal;
  return abi::kSuccess;
}

int cuDeviceGetName(char* name, int size, int device) {
  if (name == nullptr || size <= 0) return abi::kInvalidValue;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(size), "%s", gpu().name);
  return abi::kSuccess;
}

int cuDeviceGetUuid(abi::Uuid* uuid, int device) {
  if (uuid == nullptr) return abi::kInvalidValue;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  node_device_uuid(*uuid, node_device_of(device));
  return abi::kSuccess;
}
int cuDeviceGetUuid_v2(abi::Uuid* uuid, int device) { return cuDeviceGetUuid(uuid, device); }

int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  if (bytes == nullptr) return abi::kInvalidValue;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  *bytes = gpu().total_bytes;
  return abi::kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return value == nullptr ? abi::kInvalidValue : device_attribute(*value, attribute, device);
}

int cuDeviceGetProperties(abi::DriverDeviceProperties* out, int device) {
  if (out == nullptr) return abi::kInvalidValue;
  abi::DeviceProperties p;
  if (const auto status = fill_properties(p, device); status != abi::kSuccess) return status;
  out->maxThreadsPerBlock = p.maxThreadsPerBlock;
  std::memcpy(out->maxThreadsDim, p.maxThreadsDim, sizeof p.maxThreadsDim);
  std::memcpy(out->maxGridSize, p.maxGridSize, sizeof p.maxGridSize);
  out->sharedMemPerBlock = static_cast<int>(p.sharedMemPerBlock);
  out->totalConstantMemory = static_cast<int>(p.totalConstMem);
  out->SIMDWidth = p.warpSize;
  out->memPitch = static_cast<int>(p.memPitch);
  out->regsPerBlock = p.regsPerBlock;
  out->clockRate = static_cast<int>(gpu().clock_khz);
  out->textureAlign = static_cast<int>(p.textureAlignment);
  return abi::kSuccess;
}

int cuDeviceComputeCapability(int* major, int* minor, int device) {
  if (major == nullptr || minor == nullptr) return abi::kInvalidValue;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  *major = static_cast<int>(gpu().compute_major);
  *minor = static_cast<int>(gpu().compute_minor);
  return abi::kSuccess;
}

int cuDeviceGetPCIBusId(char* text, int size, int device) {
  if (text == nullptr || size < 13) return abi::kInvalidValue;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  pci_bus_id(text, size, device);
  return abi::kSuccess;
}
int cuDeviceGetByPCIBusId(int* device, const char* text) {
  if (device == nullptr || text == nullptr) return abi::kInvalidValue;
  const int ordinal = ordinal_by_pci(text);
  if (ordinal < 0) return abi::kInvalidDevice;
  *device = ordinal;
  return abi::kSuccess;
}

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) return abi::kInvalidValue;
  if (!known_ordinal(device) || !known_ordinal(peer)) return abi::kInvalidDevice;
  *can = device != peer ? 1 : 0;
  return abi::kSuccess;
}
int cuDeviceGetP2PAttribute(int* value, int attribute, int from, int to) {
  if (value == nullptr || attribute < 1 || attribute > 5) return abi::kInvalidValue;
  if (!known_ordinal(from) || !known_ordinal(to) || from == to) return abi::kInvalidDevice;
  *value = attribute == 2 || attribute == 3 ? 1 : 0;
  return abi::kSuccess;
}
int cuCtxEnablePeerAccess(void* peer, unsigned flags) {
  if (flags != 0) return abi::kInvalidValue;
  if (current_context() == nullptr || !valid_context(as_context(peer))) return abi::kInvalidContext;
  return enable_peer(current_ordinal(), as_context(peer)->ordinal);
}
int cuCtxDisablePeerAccess(void* peer) {
  if (current_context() == nullptr || !valid_context(as_context(peer))) return abi::kInvalidContext;
  return disable_peer(current_ordinal(), as_context(peer)->ordinal);
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (context == nullptr) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  auto status = abi::kSuccess;
  *context = primary_context(device, status);
  return status;
}
// Primary contexts stay until the process ends, as those of the runtime API do.
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  return primary_active(device) ? abi::kSuccess : abi::kInvalidContext;
}
int cuDevicePrimaryCtxReset_v2(int device) {
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  phantora::table::refuse("cuDevicePrimaryCtxReset of a device in use");
  return abi::kSuccess;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  set_primary_flags(device, flags);
  return abi::kSuccess;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (flags == nullptr || active == nullptr) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  *flags = primary_flags(device);
  *active = primary_active(device) ? 1 : 0;
  return abi::kSuccess;
}

int cuCtxCreate_v4(void** context, void*, unsigned flags, int device) {
  if (context == nullptr) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  if (!known_ordinal(device)) return abi::kInvalidDevice;
  auto status = abi::kSuccess;
  Context* made = new_context(device, flags, status);
  if (made != nullptr) push_context(made);
  *context = made;
  return status;
}
int cuCtxDestroy_v2(void* context) {
  if (!valid_context(as_context(context)) || as_context(context)->primary) return abi::kInvalidContext;
  if (current_context() == context) pop_context();
  destroy_context(as_context(context));
  return abi::kSuccess;
}
int cuCtxPushCurrent_v2(void* context) {
  if (!valid_context(as_context(context))) return abi::kInvalidContext;
  push_context(as_context(context));
  return abi::kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  if (current_context() == nullptr) return abi::kInvalidContext;
  Context* top = pop_context();
  if (context != nullptr) *context = top;
  return abi::kSuccess;
}
int cuCtxSetCurrent(void* context) {
  if (context != nullptr && !valid_context(as_context(context))) return abi::kInvalidContext;
  set_current_context(as_context(context));
  return abi::kSuccess;
}
int cuCtxGetCurrent(void** context) {
  if (context == nullptr) return abi::kInvalidValue;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  *context = current_context();
  return abi::kSuccess;
}
int cuCtxGetDevice(int* device) {
  if (device == nullptr) return abi::kInvalidValue;
  if (current_context() == nullptr) return abi::kInvalidContext;
  *device = current_ordinal();
  return abi::kSuccess;
}
int cuCtxGetDevice_v2(int* device, void* context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  if (!valid_context(as_context(context))) return abi::kInvalidContext;
  *device = as_context(context)->ordinal;
  return abi::kSuccess;
}
int cuCtxGetFlags(unsigned* flags) {
  if (current_context() == nullptr) return abi::kInvalidContext;
  *flags = current_context()->flags;
  return abi::kSuccess;
}
int cuCtxGetId(void* context, unsigned long long* id) {
  Context* chosen = context == nullptr ? current_context() : as_context(context);
  if (!valid_context(chosen)) return abi::kInvalidContext;
  *id = chosen->id;
  return abi::kSuccess;
}
int cuCtxSynchronize() { return current_context() == nullptr ? abi::kInvalidContext : wait_current_device(); }
int cuCtxSynchronize_v2(void* context) {
  if (context == nullptr) return cuCtxSynchronize();
  if (!valid_context(as_context(context))) return abi::kInvalidContext;
  phantora::client::wait_device(as_context(context)->node_device);
  return abi::kSuccess;
}
int cuCtxGetLimit(std::size_t* value, int limit) {
  if (value == nullptr) return abi::kInvalidValue;
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return abi::kUnsupportedLimit;
  *value = limits[limit];
  return abi::kSuccess;
}
int cuCtxSetLimit(int limit, std::size_t value) {
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return abi::kUnsupportedLimit;
  limits[limit] = value;
  return abi::kSuccess;
}
int cuCtxGetCacheConfig(int* configuration) {
  if (configuration == nullptr) return abi::kInvalidValue;
  *configuration = 0;
  return abi::kSuccess;
}
int cuCtxSetCacheConfig(int) { return abi::kSuccess; }
int cuCtxGetApiVersion(void*, unsigned* version) {
  if (version == nullptr) return abi::kInvalidValue;
  *version = 3020;
  return abi::kSuccess;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return abi::kSuccess;
}
int cuCtxResetPersistingL2Cache() { return abi::kSuccess; }

int cuGetErrorString(int status, const char** text) {
  if (text == nullptr) return abi::kInvalidValue;
  *text = driver_error_name(status) == nullptr ? nullptr : error_text(status);
  return *text == nullptr ? abi::kInvalidValue : abi::kSuccess;
}
int cuGetErrorName(int status, const char** name) {
  if (name == nullptr) return abi::kInvalidValue;
  *name = driver_error_name(status);
  return *name == nullptr ? abi::kInvalidValue : abi::kSuccess;
}

// Results: 0 found, 1 symbol not found, 2 version not sufficient.
int cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long, int* result) {
  if (symbol == nullptr || function == nullptr) return abi::kInvalidValue;
  *function = phantora::table::find_base(symbol);
  if (result != nullptr) *result = *function == nullptr ? 1 : 0;
  return *function == nullptr ? abi::kNotFound : abi::kSuccess;
}
int cuGetProcAddress(const char* symbol, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// Private tables of NVIDIA's own tools. An empty answer made the real CUPTI crash; "not found" it takes.
int cuGetExportTable(const void** table, const void*) {
  if (table != nullptr) *table = nullptr;
  return abi::kNotFound;
}

// The driver's error log: it never has a line.
int cuLogsRegisterCallback(void* callback, void*, void** handle) {
  if (callback == nullptr) return abi::kInvalidValue;
  if (handle != nullptr) *handle = callback;
  return abi::kSuccess;
}
int cuLogsUnregisterCallback(void* handle) { return handle == nullptr ? abi::kInvalidValue : abi::kSuccess; }

int cuProfilerInitialize(const char*, const char*, int) { return abi::kSuccess; }
int cuProfilerStart() { return abi::kSuccess; }
int cuProfilerStop() { return abi::kSuccess; }

}  // extern "C"
