// cuDNN's minimum. cudnnGetVersion answers 8500 (8.5.0): with it torch takes its own flash attention rather than
// cuDNN's, which needs the graph API. cudnnGetProperty answers the version torch was built with, because torch refuses
// to go on when that one differs. All calls that compute are refused, and named in the report.
#include <cstring>
#include <new>

#include "libs/bridge.hpp"
#include "libs/notes.hpp"

namespace abi = phantora::abi;

namespace {

constexpr std::size_t kReportedVersion = 8500;
constexpr int kProperties[] = {9, 24, 0};  // of torch 2.14.1's build

struct Handle {
  void* stream;
};

}  // namespace

namespace phantora::libs {

void kernel_seen(const char* mangled) {
  // The forward kernel of torch's flash attention; a Hopper with the real cuDNN would not have come here by default.
  if (std::strstr(mangled, "flash_fwd") == nullptr) return;
  const wire::RunHeader* header = client::header();
  if (header == nullptr || header->gpu.compute_major != 9) return;
  client::note("note",
               "a real Hopper with this torch would use cuDNN attention; flash attention was simulated instead");
}

}  // namespace phantora::libs

PHANTORA_EXPORT std::size_t cudnnGetVersion() { return kReportedVersion; }
PHANTORA_EXPORT std::size_t cudnnGetCudartVersion() { return 13000; }
PHANTORA_EXPORT int cudnnGetProperty(int type, int* value) {
  if (value == nullptr || type < 0 || type > 2) return abi::kCudnnBadParam;
  *value = kProperties[type];
  return abi::kCudnnSuccess;
}
PHANTORA_EXPORT int cudnnCreate(void** handle) {
  if (handle == nullptr) return abi::kCudnnBadParam;
  *handle = new (std::nothrow) Handle{};
  return *handle == nullptr ? abi::kCudnnBadParam : abi::kCudnnSuccess;
}
PHANTORA_EXPORT int cudnnDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return abi::kCudnnSuccess;
}
PHANTORA_EXPORT int cudnnSetStream(void* handle, void* stream) {
  if (handle == nullptr) return abi::kCudnnBadParam;
  static_cast<Handle*>(handle)->stream = stream;
  return abi::kCudnnSuccess;
}
PHANTORA_EXPORT int cudnnGetStream(void* handle, void** stream) {
  if (handle == nullptr || stream == nullptr) return abi::kCudnnBadParam;
  *stream = static_cast<Handle*>(handle)->stream;
  return abi::kCudnnSuccess;
}
PHANTORA_EXPORT const char* cudnnGetErrorString(int status) {
  switch (status) {
    case abi::kCudnnSuccess:
      return "CUDNN_STATUS_SUCCESS";
    case abi::kCudnnBadParam:
      return "CUDNN_STATUS_BAD_PARAM";
    case abi::kCudnnNotSupported:
      return "CUDNN_STATUS_NOT_SUPPORTED (cuDNN is not simulated)";
    default:
      return "CUDNN_STATUS unknown";
  }
}
PHANTORA_EXPORT void cudnnGetLastErrorString(char* message, std::size_t size) {
  if (message == nullptr || size == 0) return;
  std::strncpy(message, "cuDNN is not simulated", size - 1);
  message[size - 1] = '\0';
}
