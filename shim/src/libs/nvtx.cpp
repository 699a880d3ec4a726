// NVTX before version 3: marks for a profiler that is not there. The depth of ranges is kept, as the real library
// returns it.
#include <cstdint>

#include "phantora/abi_libs.hpp"

namespace {

thread_local int t_depth = 0;

}  // namespace

PHANTORA_EXPORT void nvtxMarkA(const char*) {}
PHANTORA_EXPORT void nvtxMarkEx(const void*) {}
PHANTORA_EXPORT int nvtxRangePushA(const char*) { return t_depth++; }
PHANTORA_EXPORT int nvtxRangePushEx(const void*) { return t_depth++; }
PHANTORA_EXPORT int nvtxRangePop() { return t_depth > 0 ? --t_depth : -1; }
PHANTORA_EXPORT std::uint64_t nvtxRangeStartA(const char*) {
  static thread_local std::uint64_t id = 0;
  return ++id;
}
PHANTORA_EXPORT std::uint64_t nvtxRangeStartEx(const void*) { return nvtxRangeStartA(nullptr); }
PHANTORA_EXPORT void nvtxRangeEnd(std::uint64_t) {}
PHANTORA_EXPORT void nvtxNameOsThreadA(std::uint32_t, const char*) {}
