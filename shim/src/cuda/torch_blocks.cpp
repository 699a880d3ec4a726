// Blocks that torch's caching allocator hands out again. They come without any CUDA call, and what the last owner left
// there must not be read as the new owner's values: a count that a kernel of ATen's would have written into such a
// block decides how much is allocated next.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "cuda/values.hpp"
#include "libc/real.hpp"

namespace {

using Report = void (*)(void*, std::int64_t, std::size_t, std::size_t, std::uint16_t);

constexpr std::uint8_t kCudaDeviceType = 1;  // c10::DeviceType::CUDA, the low byte of a c10::Device

// Torch's own: its library is not in the global scope, so it is asked for by name.
Report real_report(const char* name) {
  static const auto found = [name]() -> Report {
    void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    return library == nullptr ? nullptr : reinterpret_cast<Report>(phantora::libc::find_in(library, name));
  }();
  return found;
}

}  // namespace

extern "C" {

// void c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device): called for every block of memory that
// torch hands out (bytes > 0) or takes back.
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void* pointer, std::int64_t bytes, std::size_t allocated,
                                                           std::size_t reserved, std::uint16_t device) {
  if (bytes > 0 && (device & 0xff) == kCudaDeviceType) {
    phantora::cuda::mark_unknown_in_order(pointer, static_cast<std::size_t>(bytes));
  }
  if (const Report report = real_report(__func__)) report(pointer, bytes, allocated, reserved, device);
}

}  // extern "C"
