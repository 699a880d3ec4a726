// NVML: how the GPUs of a node hang together. All NVLinks of a GPU go to NVSwitches, as in DGX and HGX machines.
#include <cstring>

#include "libs/nvml/device.hpp"

namespace abi = phantora::abi;
namespace client = phantora::client;
namespace nvml = phantora::libs::nvml;

namespace {

constexpr int kRemoteSwitch = 2;      // nvmlIntNvLinkDeviceType_t
constexpr int kTopologySystem = 50;   // nvmlGpuTopologyLevel_t: the path between PCIe trees of different sockets
constexpr unsigned kNvlink4 = 5;      // nvmlNvlinkVersion_t of Hopper's links
constexpr unsigned kLinkFields = 91;  // NVML_FI_DEV_NVLINK_LINK_COUNT

bool link_exists(const void* handle, unsigned link) {
  return nvml::device_of(handle) >= 0 && link < nvml::gpu().nvlink_count;
}

struct FieldValue {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  int type, status;
  union {
    double d;
    int i;
    unsigned u;
    unsigned long ul;
    unsigned long long ull;
  } value;
};

}  // namespace

PHANTORA_EXPORT int nvmlDeviceGetNvLinkState(const void* h, unsigned link, int* active) {
  if (!link_exists(h, link) || active == nullptr) return abi::kNvmlInvalidArgument;
  *active = 1;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetNvLinkVersion(const void* h, unsigned link, unsigned* version) {
  if (!link_exists(h, link) || version == nullptr) return abi::kNvmlInvalidArgument;
  *version = kNvlink4;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetNvLinkCapability(const void* h, unsigned link, int, unsigned* yes) {
  if (!link_exists(h, link) || yes == nullptr) return abi::kNvmlInvalidArgument;
  *yes = 1;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const void* h, unsigned link, int* type) {
  if (nvml::device_of(h) < 0 || type == nullptr) return abi::kNvmlInvalidArgument;
  if (!link_exists(h, link)) return abi::kNvmlNotSupported;
  *type = kRemoteSwitch;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const void* h, unsigned link, abi::NvmlPciInfo* info) {
  if (nvml::device_of(h) < 0 || info == nullptr) return abi::kNvmlInvalidArgument;
  if (!link_exists(h, link)) return abi::kNvmlNotSupported;
  std::memset(info, 0, sizeof *info);
  info->bus = 0x05 + link % 4;  // one of four switches
  const char digit = static_cast<char>('5' + link % 4);
  std::strcpy(info->bus_id, "00000000:05:00.0");
  info->bus_id[10] = digit;
  std::strcpy(info->bus_id_legacy, "0000:05:00.0");
  info->bus_id_legacy[6] = digit;
  return abi::kNvmlSuccess;
}

// An NVSwitch machine that is a fabric of its own: complete, without a cluster id (so no multi-node NVLink).
PHANTORA_EXPORT int nvmlDeviceGetGpuFabricInfoV(const void* h, abi::NvmlFabricInfoV* info) {
  constexpr unsigned char kCompleted = 3;
  if (nvml::device_of(h) < 0 || info == nullptr) return abi::kNvmlInvalidArgument;
  std::memset(info->cluster_uuid, 0, sizeof info->cluster_uuid);
  info->status = abi::kNvmlSuccess;
  info->clique_id = 0;
  info->state = kCompleted;
  info->health_mask = 0;
  return abi::kNvmlSuccess;
}

PHANTORA_EXPORT int nvmlDeviceGetP2PStatus(const void* a, const void* b, int, int* status) {
  if (nvml::device_of(a) < 0 || nvml::device_of(b) < 0 || status == nullptr) return abi::kNvmlInvalidArgument;
  *status = 0;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetTopologyCommonAncestor(const void* a, const void* b, int* level) {
  if (nvml::device_of(a) < 0 || nvml::device_of(b) < 0 || level == nullptr) return abi::kNvmlInvalidArgument;
  *level = a == b ? 0 : kTopologySystem;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetCpuAffinity(const void* h, unsigned words, unsigned long* set) {
  if (nvml::device_of(h) < 0 || set == nullptr) return abi::kNvmlInvalidArgument;
  const unsigned cpus = client::header()->cpu_count;
  for (unsigned word = 0; word < words; ++word) {
    set[word] = 0;
    for (unsigned bit = 0; bit < 64 && word * 64 + bit < cpus; ++bit) set[word] |= 1UL << bit;
  }
  return abi::kNvmlSuccess;
}

// Fields: the number of links is known; everything else says so itself.
PHANTORA_EXPORT int nvmlDeviceGetFieldValues(const void* h, int count, FieldValue* values) {
  constexpr int kUnsigned = 1;
  if (nvml::device_of(h) < 0 || values == nullptr || count < 0) return abi::kNvmlInvalidArgument;
  for (int i = 0; i < count; ++i) {
    values[i].timestamp_us = static_cast<long long>(client::now_ns() / 1000);
    values[i].latency_us = 0;
    values[i].type = kUnsigned;
    values[i].value.ull = 0;
    values[i].status = abi::kNvmlNotSupported;
    if (values[i].field != kLinkFields) continue;
    values[i].value.u = static_cast<unsigned>(nvml::gpu().nvlink_count);
    values[i].status = abi::kNvmlSuccess;
  }
  return abi::kNvmlSuccess;
}
