// NVML: memory and processes from the run's accounting; power, clocks and the like from the profile, as constants.
#include <algorithm>
#include <cstring>
#include <vector>

#include "client_state.hpp"
#include "libs/nvml/device.hpp"

namespace abi = phantora::abi;
namespace client = phantora::client;
namespace nvml = phantora::libs::nvml;
namespace wire = phantora::wire;

namespace {

constexpr unsigned kTemperature = 50;  // degrees Celsius; assumed, said so in the report
constexpr int kTypeMemory = 2;         // nvmlClockType_t: graphics 0, SM 1, memory 2, video 3

std::uint64_t used_bytes(int device) { return client::device_state(device).used_bytes.load(); }

// Answers a number about a device of ours.
template <typename Value, typename Answer>
int answer(const void* handle, Value* value, Answer give) {
  const int device = nvml::device_of(handle);
  if (device < 0 || value == nullptr) return abi::kNvmlInvalidArgument;
  *value = static_cast<Value>(give(device));
  return abi::kNvmlSuccess;
}
template <typename Value, typename Answer>
int constant(const void* handle, Value* value, Answer give) {
  nvml::note_constants();
  return answer(handle, value, give);
}

// Processes with memory on the device: in a run, the rank that owns it; in null mode, this process.
std::vector<abi::NvmlProcessInfo> processes(int device) {
  std::vector<abi::NvmlProcessInfo> result;
  const std::uint64_t used = used_bytes(device);
  if (used == 0) return result;
  abi::NvmlProcessInfo info{};
  info.pid = static_cast<unsigned>(client::g_state.pid);
  if (client::is_actor()) {
    const wire::RunHeader* run = client::header();
    const std::uint32_t per_node = std::max(1U, run->gpus_per_node);
    const auto rank =
        static_cast<std::uint32_t>(client::world_rank()) / per_node * per_node + static_cast<std::uint32_t>(device);
    if (rank < run->world_size) info.pid = client::actor_block(rank).pid.load();
  }
  info.used_bytes = used;
  info.gpu_instance = info.compute_instance = 0xffffffffU;
  result.push_back(info);
  return result;
}

template <typename Info>
int list_processes(const void* handle, unsigned* count, Info* infos) {
  const int device = nvml::device_of(handle);
  if (device < 0 || count == nullptr) return abi::kNvmlInvalidArgument;
  const auto all = processes(device);
  const unsigned room = *count;
  *count = static_cast<unsigned>(all.size());
  if (room < all.size()) return abi::kNvmlInsufficientSize;
  for (std::size_t i = 0; i < all.size() && infos != nullptr; ++i) std::memcpy(&infos[i], &all[i], sizeof(Info));
  return abi::kNvmlSuccess;
}

std::uint64_t clock_mhz(int type) {
  return (type == kTypeMemory ? nvml::gpu().memory_clock_khz : nvml::gpu().clock_khz) / 1000;
}

}  // namespace

PHANTORA_EXPORT int nvmlDeviceGetMemoryInfo(const void* handle, abi::NvmlMemory* memory) {
  const int device = nvml::device_of(handle);
  if (device < 0 || memory == nullptr) return abi::kNvmlInvalidArgument;
  memory->total = nvml::gpu().total_bytes;
  memory->used = std::min<unsigned long long>(used_bytes(device), memory->total);
  memory->free = memory->total - memory->used;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetMemoryInfo_v2(const void* handle, abi::NvmlMemoryV2* memory) {
  abi::NvmlMemory plain{};
  if (memory == nullptr) return abi::kNvmlInvalidArgument;
  const int status = nvmlDeviceGetMemoryInfo(handle, &plain);
  if (status != abi::kNvmlSuccess) return status;
  memory->total = plain.total;
  memory->used = plain.used;
  memory->free = plain.free;
  memory->reserved = 0;
  return abi::kNvmlSuccess;
}
PHANTORA_EXPORT int nvmlDeviceGetBAR1MemoryInfo(const void* handle, abi::NvmlBar1Memory* memory) {
  constexpr unsigned long long kBar1 = 128ULL << 30;  // of an H100; nothing is mapped through it here
  return answer(handle, memory, [&](int) { return abi::NvmlBar1Memory{kBar1, kBar1, 0}; });
}

PHANTORA_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const void* h, unsigned* count,
                                                            abi::NvmlProcessInfo* infos) {
  return list_processes(h, count, infos);
}
PHANTORA_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(const void* h, unsigned* count,
                                                            abi::NvmlProcessInfo* infos) {
  return list_processes(h, count, infos);
}
PHANTORA_EXPORT int nvmlDeviceGetComputeRunningProcesses(const void* h, unsigned* count,
                                                         abi::NvmlProcessInfoV1* infos) {
  return list_processes(h, count, infos);
}
PHANTORA_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(const void*, unsigned* count, abi::NvmlProcessInfo*) {
  if (count != nullptr) *count = 0;
  return count == nullptr ? abi::kNvmlInvalidArgument : abi::kNvmlSuccess;
}

PHANTORA_EXPORT int nvmlDeviceGetUtilizationRates(const void* h, abi::NvmlUtilization* rates) {
  return constant(h, rates, [](int) { return abi::NvmlUtilization{0, 0}; });
}
PHANTORA_EXPORT int nvmlDeviceGetTemperature(const void* h, int, unsigned* value) {
  return constant(h, value, [](int) { return kTemperature; });
}
struct NvmlTemperature {
  unsigned version;
  int sensor;
  int temperature;
};
PHANTORA_EXPORT int nvmlDeviceGetTemperatureV(const void* h, NvmlTemperature* value) {
  if (value == nullptr) return abi::kNvmlInvalidArgument;
  return constant(h, &value->temperature, [](int) { return kTemperature; });
}
// Power as if the GPU ran at its limit; energy is that power over virtual time.
PHANTORA_EXPORT int nvmlDeviceGetPowerUsage(const void* h, unsigned* milliwatt) {
  return constant(h, milliwatt, [](int) { return nvml::gpu().power_limit_mw; });
}
PHANTORA_EXPORT int nvmlDeviceGetTotalEnergyConsumption(const void* h, unsigned long long* millijoule) {
  return constant(h, millijoule, [](int) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(client::now_ns()) *
                                           nvml::gpu().power_limit_mw / 1'000'000'000U);
  });
}
PHANTORA_EXPORT int nvmlDeviceGetPowerManagementLimit(const void* h, unsigned* milliwatt) {
  return answer(h, milliwatt, [](int) { return nvml::gpu().power_limit_mw; });
}
PHANTORA_EXPORT int nvmlDeviceGetEnforcedPowerLimit(const void* h, unsigned* milliwatt) {
  return nvmlDeviceGetPowerManagementLimit(h, milliwatt);
}
PHANTORA_EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(const void* h, unsigned* milliwatt) {
  return nvmlDeviceGetPowerManagementLimit(h, milliwatt);
}
PHANTORA_EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(const void* h, unsigned* least, unsigned* most) {
  const int status = answer(h, least, [](int) { return nvml::gpu().power_limit_mw; });
  return status == abi::kNvmlSuccess ? nvmlDeviceGetPowerManagementLimit(h, most) : status;
}

PHANTORA_EXPORT int nvmlDeviceGetClockInfo(const void* h, int type, unsigned* mhz) {
  return constant(h, mhz, [type](int) { return clock_mhz(type); });
}
PHANTORA_EXPORT int nvmlDeviceGetMaxClockInfo(const void* h, int type, unsigned* mhz) {
  return answer(h, mhz, [type](int) { return clock_mhz(type); });
}
PHANTORA_EXPORT int nvmlDeviceGetApplicationsClock(const void* h, int type, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(h, type, mhz);
}
PHANTORA_EXPORT int nvmlDeviceGetClock(const void* h, int type, int, unsigned* mhz) {
  return nvmlDeviceGetClockInfo(h, type, mhz);
}

PHANTORA_EXPORT int nvmlDeviceGetPerformanceState(const void* h, int* state) {
  return answer(h, state, [](int) { return 0; });
}
PHANTORA_EXPORT int nvmlDeviceGetPersistenceMode(const void* h, int* mode) {
  return answer(h, mode, [](int) { return 1; });
}
PHANTORA_EXPORT int nvmlDeviceGetComputeMode(const void* h, int* mode) {
  return answer(h, mode, [](int) { return 0; });
}
PHANTORA_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(const void* h, unsigned long long* reasons) {
  return constant(h, reasons, [](int) { return 0; });
}
PHANTORA_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(const void* h, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(h, reasons);
}
PHANTORA_EXPORT int nvmlDeviceGetMigMode(const void* h, unsigned* current, unsigned* pending) {
  const int status = answer(h, current, [](int) { return 0; });
  return status == abi::kNvmlSuccess ? answer(h, pending, [](int) { return 0; }) : status;
}
PHANTORA_EXPORT int nvmlDeviceIsMigDeviceHandle(const void* h, unsigned* mig) {
  return answer(h, mig, [](int) { return 0; });
}
PHANTORA_EXPORT int nvmlDeviceGetEccMode(const void* h, int* current, int* pending) {
  const int status = answer(h, current, [](int) { return 1; });
  return status == abi::kNvmlSuccess ? answer(h, pending, [](int) { return 1; }) : status;
}
PHANTORA_EXPORT int nvmlDeviceGetTotalEccErrors(const void* h, int, int, unsigned long long* count) {
  return answer(h, count, [](int) { return 0; });
}
PHANTORA_EXPORT int nvmlDeviceGetRemappedRows(const void* h, unsigned* a, unsigned* b, unsigned* pending,
                                              unsigned* failed) {
  if (nvml::device_of(h) < 0 || a == nullptr || b == nullptr || pending == nullptr || failed == nullptr)
    return abi::kNvmlInvalidArgument;
  *a = *b = *pending = *failed = 0;
  return abi::kNvmlSuccess;
}

PHANTORA_EXPORT int nvmlDeviceGetCudaComputeCapability(const void* h, int* major, int* minor) {
  const int status = answer(h, major, [](int) { return nvml::gpu().compute_major; });
  return status == abi::kNvmlSuccess ? answer(h, minor, [](int) { return nvml::gpu().compute_minor; }) : status;
}
PHANTORA_EXPORT int nvmlDeviceGetArchitecture(const void* h, unsigned* architecture) {
  // nvmlDeviceArchitecture_t: Ampere 7, Ada 8, Hopper 9, Blackwell 10.
  return answer(h, architecture, [](int) {
    const auto& gpu = nvml::gpu();
    if (gpu.compute_major == 8) return gpu.compute_minor >= 9 ? 8U : 7U;
    return static_cast<unsigned>(gpu.compute_major);
  });
}
PHANTORA_EXPORT int nvmlDeviceGetBrand(const void* h, unsigned* brand) {
  constexpr unsigned kNvidia = 14;
  return answer(h, brand, [](int) { return kNvidia; });
}
PHANTORA_EXPORT int nvmlDeviceGetMemoryBusWidth(const void* h, unsigned* bits) {
  return answer(h, bits, [](int) { return nvml::gpu().memory_bus_bits; });
}
PHANTORA_EXPORT int nvmlDeviceGetNumGpuCores(const void* h, unsigned* cores) {
  constexpr std::uint64_t kCoresPerSm = 128;  // FP32 lanes of an SM since Ampere's GA10x and Hopper
  return answer(h, cores, [](int) { return nvml::gpu().sm_count * kCoresPerSm; });
}
