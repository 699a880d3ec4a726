// Handles of libraries whose computations are refused: they can be made, given a stream and destroyed, since frameworks
// make them before they know whether they will be used. MAGMA, inside torch's linear algebra, wants a cuSPARSE handle,
// for one.
#include <cstddef>
#include <new>

#include "phantora/abi_libs.hpp"

namespace {

struct Handle {
  void* stream;
};

constexpr int kSuccess = 0, kInvalid = 3;  // INVALID_VALUE of cuSPARSE and cuSOLVER alike

int create(void** handle) {
  if (handle == nullptr) return kInvalid;
  *handle = new (std::nothrow) Handle{};
  return *handle == nullptr ? kInvalid : kSuccess;
}
int destroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return kSuccess;
}
int set_stream(void* handle, void* stream) {
  if (handle == nullptr) return kInvalid;
  static_cast<Handle*>(handle)->stream = stream;
  return kSuccess;
}

}  // namespace

PHANTORA_EXPORT int cusparseCreate(void** handle) { return create(handle); }
PHANTORA_EXPORT int cusparseDestroy(void* handle) { return destroy(handle); }
PHANTORA_EXPORT int cusparseSetStream(void* handle, void* stream) { return set_stream(handle, stream); }
PHANTORA_EXPORT int cusparseSetPointerMode(void* handle, int) { return handle == nullptr ? kInvalid : kSuccess; }
PHANTORA_EXPORT const char* cusparseGetErrorString(int status) {
  switch (status) {
    case 0:
      return "success";
    case kInvalid:
      return "invalid value";
    case 10:
      return "operation not supported (cuSPARSE is not simulated)";
    default:
      return "unknown cuSPARSE status";
  }
}

PHANTORA_EXPORT int cusolverDnCreate(void** handle) { return create(handle); }
PHANTORA_EXPORT int cusolverDnDestroy(void* handle) { return destroy(handle); }
PHANTORA_EXPORT int cusolverDnSetStream(void* handle, void* stream) { return set_stream(handle, stream); }

PHANTORA_EXPORT int nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return kInvalid;
  *major = 13;
  *minor = 0;
  return kSuccess;
}
PHANTORA_EXPORT const char* nvrtcGetErrorString(int status) {
  switch (status) {
    case 0:
      return "NVRTC_SUCCESS";
    case kInvalid:
      return "NVRTC_ERROR_INVALID_INPUT";
    case 11:
      return "NVRTC_ERROR_INTERNAL_ERROR (run-time compilation of CUDA C++ is not simulated)";
    default:
      return "NVRTC_ERROR unknown";
  }
}
