// CUPTI: every call but the two below is refused, so that Kineto records the CPU side alone.
#include <cstdint>

#include "phantora/abi_libs.hpp"

namespace abi = phantora::abi;

PHANTORA_EXPORT int cuptiGetVersion(std::uint32_t* version) {
  if (version == nullptr) return 1;  // CUPTI_ERROR_INVALID_PARAMETER
  *version = 130000;
  return abi::kCuptiSuccess;
}

PHANTORA_EXPORT int cuptiGetResultString(int result, const char** text) {
  if (text == nullptr) return 1;
  switch (result) {
    case abi::kCuptiSuccess:
      *text = "CUPTI_SUCCESS";
      break;
    case abi::kCuptiErrorNotSupported:
      *text = "CUPTI_ERROR_NOT_SUPPORTED (GPU profiling is not simulated)";
      break;
    default:
      *text = "CUPTI error";
      break;
  }
  return abi::kCuptiSuccess;
}
