// NVML: initialisation, versions, and finding devices.
#include <cstdio>
#include <cstring>

#include "libs/nvml/device.hpp"

namespace abi = phantora::abi;
namespace nvml = phantora::libs::nvml;

namespace {

// Assumed: a release of the driver branch that came with CUDA 13.0 (R580).
constexpr const char kDriverVersion[] = "580.95.05";
constexpr const char kNvmlVersion[] = "13.580.95.05";

int text_out(char* target, unsigned size, const char* text) {
  if (target == nullptr) return abi::kNvmlInvalidArgument;
  if (std::strlen(text) + 1 > size) return abi::kNvmlInsufficientSize;
  std::strcpy(target, text);
  return abi::kNvmlSuccess;
}

int handle_out(void** handle, int device) {
  if (handle == nullptr) return abi::kNvmlInvalidArgument;
  if (device < 0 || device >= nvml::device_count()) return abi::kNvmlNotFound;
  *handle = nvml::handle_of(device);
  return abi::kNvmlSuccess;
}

constexpr int kDriverNotLoaded = 9;

}  // namespace

PHANTORA_EXPORT int nvmlInit_v2() { return nvml::usable() ? abi::kNvmlSuccess : kDriverNotLoaded; }
PHANTORA_EXPORT int nvmlInit() { return nvmlInit_v2(); }
PHANTORA_EXPORT int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
PHANTORA_EXPORT int nvmlShutdown() { return abi::kNvmlSuccess; }

PHANTORA_EXPORT const char* nvmlErrorString(int status) {
  switch (status) {
    case abi::kNvmlSuccess:
      return "Success";
    case abi::kNvmlUninitialized:
      return "Uninitialized";
    case abi::kNvmlInvalidArgument:
      return "Invalid Argument";
    case abi::kNvmlNotSupported:
      return "Not Supported";
    case abi::kNvmlNotFound:
      return "Not Found";
    case abi::kNvmlInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case abi::kNvmlFunctionNotFound:
      return "Function Not Found";
    default:
      return "Unknown Error";
  }
}

PHANTORA_EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  return text_out(version, size, kDriverVersion);
}
PHANTORA_EXPORT int nvmlSystemGetNVMLVersion(char* version, unsigned size) {
  return text_out(version, size, kNvmlVersion);
}
PHANTORA_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return abi::kNvmlInvalidArgument;
  if (!nvml::usable()) return abi::kNvmlUninitialized;
  *version = static_cast<int>(nvml::gpu().driver_version);
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

PHANTORA_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (count == nullptr) return abi::kNvmlInvalidArgument;
  if (!nvml::usable()) return abi::kNvmlUninitialized;
  *count = static_cast<unsigned>(nvml::device_count());
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

PHANTORA_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= static_cast<unsigned>(nvml::device_count())) return abi::kNvmlInvalidArgument;
  return handle_out(handle, static_cast<int>(index));
}
PHANTORA_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void** handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
PHANTORA_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  return nvml::usable() ? handle_out(handle, nvml::device_by_bus(bus)) : static_cast<int>(abi::kNvmlUninitialized);
}
PHANTORA_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* bus, void** handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus, handle);
}
PHANTORA_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (uuid == nullptr) return abi::kNvmlInvalidArgument;
  for (int device = 0; device < nvml::device_count(); ++device) {
    char text[64];
    nvml::uuid(text, sizeof text, device);
    if (std::strcmp(text, uuid) == 0) return handle_out(handle, device);
  }
  return abi::kNvmlNotFound;
}
PHANTORA_EXPORT int nvmlDeviceGetIndex(const void* handle, unsigned* index) {
  const int device = nvml::device_of(handle);
  if (device < 0 || index == nullptr) return abi::kNvmlInvalidArgument;
  *index = static_cast<unsigned>(device);
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetMinorNumber(const void* handle, unsigned* minor) {
  return nvmlDeviceGetIndex(handle, minor);
}

PHANTORA_EXPORT int nvmlDeviceGetName(const void* handle, char* name, unsigned size) {
  return nvml::device_of(handle) < 0 ? static_cast<int>(abi::kNvmlInvalidArgument)
                                     : text_out(name, size, nvml::gpu().name);
}
PHANTORA_EXPORT int nvmlDeviceGetUUID(const void* handle, char* uuid, unsigned size) {
  const int device = nvml::device_of(handle);
  if (device < 0) return abi::kNvmlInvalidArgument;
  char text[64];
  nvml::uuid(text, sizeof text, device);
  return text_out(uuid, size, text);
}
PHANTORA_EXPORT int nvmlDeviceGetSerial(const void* handle, char* serial, unsigned size) {
  const int device = nvml::device_of(handle);
  if (device < 0) return abi::kNvmlInvalidArgument;
  char text[32];
  std::snprintf(text, sizeof text, "%013d", device + 1);  // stable within a node; no more is promised
  return text_out(serial, size, text);
}

PHANTORA_EXPORT int nvmlDeviceGetPciInfo_v3(const void* handle, abi::NvmlPciInfo* info) {
  const int device = nvml::device_of(handle);
  if (device < 0 || info == nullptr) return abi::kNvmlInvalidArgument;
  std::memset(info, 0, sizeof *info);
  nvml::bus_id(info->bus_id, sizeof info->bus_id, device, false);
  nvml::bus_id(info->bus_id_legacy, sizeof info->bus_id_legacy, device, true);
  std::sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
  info->pci_device_id = 0x233010deU;  // H100 SXM5 80GB in the public PCI id list; nothing is known to act on it
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetPciInfo_v2(const void* handle, abi::NvmlPciInfo* info) {
  return nvmlDeviceGetPciInfo_v3(handle, info);
}
PHANTORA_EXPORT int nvmlDeviceGetPciInfo(const void* handle, abi::NvmlPciInfo* info) {
  return nvmlDeviceGetPciInfo_v3(handle, info);
}
