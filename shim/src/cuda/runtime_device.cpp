// CUDA runtime: devices, versions, errors, limits, peers, entry points.
#include <cstdio>
#include <cstring>

#include "cuda/errors.hpp"
#include "cuda/memory.hpp"
#include "cuda/state.hpp"
#include "cuda/streams.hpp"
#include "phantora/table.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

// cudaLimit by number; answers of a Hopper part with an untouched context.
std::size_t limits[] = {1024, 7 << 20, 8 << 20, 2, 2048, 128, 0};

bool known_ordinal(int device) { return device >= 0 && device < visible_count(); }

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) {
  if (count == nullptr) return keep(abi::kInvalidValue);
  *count = 0;
  const auto status = initialise();
  if (status == abi::kSuccess) *count = visible_count();
  return keep(status);
}

int cudaGetDevice(int* device) {
  if (device == nullptr) return keep(abi::kInvalidValue);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  *device = current_ordinal();
  return abi::kSuccess;
}

int cudaSetDevice(int device) { return keep(set_current(device, true)); }

int cudaInitDevice(int device, unsigned, unsigned) {
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  if (!known_ordinal(device)) return keep(abi::kInvalidDevice);
  auto status = abi::kSuccess;
  primary_context(device, status);
  return keep(status);
}

int cudaSetValidDevices(int* devices, int length) {
  for (int i = 0; i < length; ++i) {
    if (devices == nullptr || !known_ordinal(devices[i])) return keep(abi::kInvalidDevice);
  }
  return abi::kSuccess;
}

int cudaChooseDevice(int* device, const void*) {
  if (device == nullptr) return keep(abi::kInvalidValue);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  *device = 0;
  return abi::kSuccess;
}

int cudaGetDeviceProperties(abi::DeviceProperties* properties, int device) {
  if (properties == nullptr) return keep(abi::kInvalidValue);
  return keep(fill_properties(*properties, device));
}
int cudaGetDeviceProperties_v2(abi::DeviceProperties* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (value == nullptr) return keep(abi::kInvalidValue);
  return keep(device_attribute(*value, attribute, device));
}

int cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (text == nullptr || size < 13) return keep(abi::kInvalidValue);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  if (!known_ordinal(device)) return keep(abi::kInvalidDevice);
  pci_bus_id(text, size, device);
  return abi::kSuccess;
}

int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  if (device == nullptr || text == nullptr) return keep(abi::kInvalidValue);
  const int ordinal = ordinal_by_pci(text);
  if (ordinal < 0) return keep(abi::kInvalidDevice);
  *device = ordinal;
  return abi::kSuccess;
}

int cudaDeviceSynchronize() { return keep(wait_current_device()); }

int cudaDeviceReset() {
  phantora::table::refuse("cudaDeviceReset of a device in use");
  return keep(wait_current_device());
}

int cudaDriverGetVersion(int* version) {
  if (version == nullptr) return keep(abi::kInvalidValue);
  *version = phantora::client::header() == nullptr ? 0 : static_cast<int>(gpu().driver_version);
  return abi::kSuccess;
}

int cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return keep(abi::kInvalidValue);
  *version = abi::kRuntimeVersion;
  return abi::kSuccess;
}

int cudaGetLastError() { return take_last_error(); }
int cudaPeekAtLastError() { return peek_last_error(); }
const char* cudaGetErrorName(int status) { return runtime_error_name(status); }
const char* cudaGetErrorString(int status) {
  const char* text = error_text(status);
  return text != nullptr ? text : "unrecognized error code";
}

int cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return keep(abi::kInvalidValue);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  *flags = primary_flags(current_ordinal()) | 8;  // cudaDeviceMapHost is always on
  return abi::kSuccess;
}

int cudaSetDeviceFlags(unsigned flags) {
  if ((flags & ~0x9fU) != 0) return keep(abi::kInvalidValue);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  set_primary_flags(current_ordinal(), flags);
  return abi::kSuccess;
}

int cudaDeviceGetLimit(std::size_t* value, int limit) {
  if (value == nullptr) return keep(abi::kInvalidValue);
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return keep(abi::kUnsupportedLimit);
  *value = limits[limit];
  return abi::kSuccess;
}

int cudaDeviceSetLimit(int limit, std::size_t value) {
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return keep(abi::kUnsupportedLimit);
  limits[limit] = value;
  return abi::kSuccess;
}

int cudaDeviceGetCacheConfig(int* configuration) {
  if (configuration == nullptr) return keep(abi::kInvalidValue);
  *configuration = 0;  // no preference
  return abi::kSuccess;
}
int cudaDeviceSetCacheConfig(int) { return abi::kSuccess; }
int cudaCtxResetPersistingL2Cache() { return abi::kSuccess; }

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return abi::kSuccess;
}

int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) return keep(abi::kInvalidValue);
  if (!known_ordinal(device) || !known_ordinal(peer)) return keep(abi::kInvalidDevice);
  *can = device != peer ? 1 : 0;
  return abi::kSuccess;
}
int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (flags != 0) return keep(abi::kInvalidValue);
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(enable_peer(current_ordinal(), peer));
}
int cudaDeviceDisablePeerAccess(int peer) {
  if (const auto status = ready(); status != abi::kSuccess) return keep(status);
  return keep(disable_peer(current_ordinal(), peer));
}
int cudaDeviceGetP2PAttribute(int* value, int attribute, int from, int to) {
  if (value == nullptr || attribute < 1 || attribute > 5) return keep(abi::kInvalidValue);
  if (!known_ordinal(from) || !known_ordinal(to) || from == to) return keep(abi::kInvalidDevice);
  *value = attribute == 2 || attribute == 3 ? 1 : 0;  // access, native atomics over NVLink
  return abi::kSuccess;
}

int cudaProfilerStart() { return abi::kSuccess; }
int cudaProfilerStop() { return abi::kSuccess; }

// Results: 0 found, 1 symbol not found, 2 version not sufficient.
int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long, int* result) {
  if (symbol == nullptr || function == nullptr) return keep(abi::kInvalidValue);
  *function = phantora::table::find_base(symbol);
  if (result != nullptr) *result = *function == nullptr ? 1 : 0;
  return *function == nullptr && result == nullptr ? keep(abi::kNotFound) : abi::kSuccess;
}
int cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags, int* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, abi::kRuntimeVersion, flags, result);
}

}  // extern "C"
