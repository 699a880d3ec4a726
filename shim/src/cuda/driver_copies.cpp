// CUDA driver: memcpy and memset in all their forms.
#include "cuda/copies.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

using DevicePointer = std::uint64_t;

void* to_pointer(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

int linear(void* target, const void* source, std::size_t bytes, int kind, void* stream, Blocking blocking) {
  Copy c;
  c.target = target;
  c.source = source;
  c.width = bytes;
  return copy(c, kind, stream, blocking);
}

// CU_MEMORYTYPE_HOST 1, _DEVICE 2, _ARRAY 3, _UNIFIED 4.
constexpr unsigned kHostType = 1, kArrayType = 3;

const char* side(unsigned type, const void* host, DevicePointer device) {
  return type == kHostType ? static_cast<const char*>(host) : static_cast<const char*>(to_pointer(device));
}

int copy_2d(const abi::DriverMemcpy2D* p, void* stream, Blocking blocking) {
  if (p == nullptr) return abi::kInvalidValue;
  if (p->srcMemoryType == kArrayType || p->dstMemoryType == kArrayType) return abi::kNotSupported;
  Copy c;
  c.width = p->WidthInBytes;
  c.rows = p->Height;
  c.source_pitch = p->srcPitch;
  c.target_pitch = p->dstPitch;
  c.source = side(p->srcMemoryType, p->srcHost, p->srcDevice) + p->srcXInBytes + p->srcY * p->srcPitch;
  c.target =
      const_cast<char*>(side(p->dstMemoryType, p->dstHost, p->dstDevice)) + p->dstXInBytes + p->dstY * p->dstPitch;
  return copy(c, abi::kDefault, stream, blocking);
}

int copy_3d(const abi::DriverMemcpy3D* p, void* stream, Blocking blocking) {
  if (p == nullptr) return abi::kInvalidValue;
  if (p->srcMemoryType == kArrayType || p->dstMemoryType == kArrayType) return abi::kNotSupported;
  Copy c;
  c.width = p->WidthInBytes;
  c.rows = p->Height;
  c.planes = p->Depth;
  c.source_pitch = p->srcPitch;
  c.target_pitch = p->dstPitch;
  c.source_plane = p->srcPitch * p->srcHeight;
  c.target_plane = p->dstPitch * p->dstHeight;
  c.source = side(p->srcMemoryType, p->srcHost, p->srcDevice) + p->srcXInBytes + p->srcY * c.source_pitch +
             p->srcZ * c.source_plane;
  c.target = const_cast<char*>(side(p->dstMemoryType, p->dstHost, p->dstDevice)) + p->dstXInBytes +
             p->dstY * c.target_pitch + p->dstZ * c.target_plane;
  return copy(c, abi::kDefault, stream, blocking);
}

int copy_batch(const DevicePointer* targets, const DevicePointer* sources, const std::size_t* sizes, std::size_t count,
               void* stream) {
  if (targets == nullptr || sources == nullptr || sizes == nullptr) return abi::kInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    const int status =
        linear(to_pointer(targets[i]), to_pointer(sources[i]), sizes[i], abi::kDefault, stream, Blocking::kNo);
    if (status != abi::kSuccess) return status;
  }
  return abi::kSuccess;
}

int set(DevicePointer pointer, std::uint32_t value, unsigned unit, std::size_t count, void* stream) {
  if (pointer % unit != 0) return abi::kInvalidValue;
  return fill(to_pointer(pointer), value, unit, count * unit, 1, count * unit, stream);
}

}  // namespace

extern "C" {

int cuMemcpy(DevicePointer to, DevicePointer from, std::size_t bytes) {
  return linear(to_pointer(to), to_pointer(from), bytes, abi::kDefault, nullptr, Blocking::kYes);
}
int cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t bytes, void* stream) {
  return linear(to_pointer(to), to_pointer(from), bytes, abi::kDefault, stream, Blocking::kNo);
}
int cuMemcpyPeer(DevicePointer to, void*, DevicePointer from, void*, std::size_t bytes) {
  return linear(to_pointer(to), to_pointer(from), bytes, abi::kDeviceToDevice, nullptr, Blocking::kYes);
}
int cuMemcpyPeerAsync(DevicePointer to, void*, DevicePointer from, void*, std::size_t bytes, void* stream) {
  return linear(to_pointer(to), to_pointer(from), bytes, abi::kDeviceToDevice, stream, Blocking::kNo);
}
int cuMemcpyHtoD_v2(DevicePointer to, const void* from, std::size_t bytes) {
  return linear(to_pointer(to), from, bytes, abi::kHostToDevice, nullptr, Blocking::kYes);
}
int cuMemcpyDtoH_v2(void* to, DevicePointer from, std::size_t bytes) {
  return linear(to, to_pointer(from), bytes, abi::kDeviceToHost, nullptr, Blocking::kYes);
}
int cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, std::size_t bytes) {
  return linear(to_pointer(to), to_pointer(from), bytes, abi::kDeviceToDevice, nullptr, Blocking::kYes);
}
int cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, void* stream) {
  return linear(to_pointer(to), from, bytes, abi::kHostToDevice, stream, Blocking::kNo);
}
int cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, void* stream) {
  return linear(to, to_pointer(from), bytes, abi::kDeviceToHost, stream, Blocking::kNo);
}
int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes, void* stream) {
  return linear(to_pointer(to), to_pointer(from), bytes, abi::kDeviceToDevice, stream, Blocking::kNo);
}
int cuMemcpy2D_v2(const abi::DriverMemcpy2D* p) { return copy_2d(p, nullptr, Blocking::kYes); }
int cuMemcpy2DUnaligned_v2(const abi::DriverMemcpy2D* p) { return copy_2d(p, nullptr, Blocking::kYes); }
int cuMemcpy2DAsync_v2(const abi::DriverMemcpy2D* p, void* stream) { return copy_2d(p, stream, Blocking::kNo); }
int cuMemcpy3D_v2(const abi::DriverMemcpy3D* p) { return copy_3d(p, nullptr, Blocking::kYes); }
int cuMemcpy3DAsync_v2(const abi::DriverMemcpy3D* p, void* stream) { return copy_3d(p, stream, Blocking::kNo); }
int cuMemcpyBatchAsync(DevicePointer* to, DevicePointer* from, std::size_t* sizes, std::size_t count, void*,
                       std::size_t*, std::size_t, std::size_t*, void* stream) {
  return copy_batch(to, from, sizes, count, stream);
}
int cuMemcpyBatchAsync_v2(DevicePointer* to, DevicePointer* from, std::size_t* sizes, std::size_t count, void*,
                          std::size_t*, std::size_t, void* stream) {
  return copy_batch(to, from, sizes, count, stream);
}

int cuMemsetD8_v2(DevicePointer p, unsigned char value, std::size_t count) { return set(p, value, 1, count, nullptr); }
int cuMemsetD16_v2(DevicePointer p, unsigned short value, std::size_t count) {
  return set(p, value, 2, count, nullptr);
}
int cuMemsetD32_v2(DevicePointer p, unsigned value, std::size_t count) { return set(p, value, 4, count, nullptr); }
int cuMemsetD8Async(DevicePointer p, unsigned char value, std::size_t count, void* stream) {
  return set(p, value, 1, count, stream);
}
int cuMemsetD16Async(DevicePointer p, unsigned short value, std::size_t count, void* stream) {
  return set(p, value, 2, count, stream);
}
int cuMemsetD32Async(DevicePointer p, unsigned value, std::size_t count, void* stream) {
  return set(p, value, 4, count, stream);
}
int cuMemsetD2D8_v2(DevicePointer p, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height) {
  return fill(to_pointer(p), value, 1, width, height, pitch, nullptr);
}
int cuMemsetD2D32_v2(DevicePointer p, std::size_t pitch, unsigned value, std::size_t width, std::size_t height) {
  return fill(to_pointer(p), value, 4, width * 4, height, pitch, nullptr);
}

}  // extern "C"
