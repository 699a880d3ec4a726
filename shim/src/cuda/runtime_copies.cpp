// CUDA runtime: memcpy and memset in all their forms.
#include "cuda/copies.hpp"
#include "cuda/errors.hpp"
#include "cuda/functions.hpp"
#include "cuda/memory.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

Copy linear(void* target, const void* source, std::size_t bytes) {
  Copy c;
  c.target = target;
  c.source = source;
  c.width = bytes;
  return c;
}

Copy pitched(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch, std::size_t width,
             std::size_t height) {
  Copy c = linear(target, source, width);
  c.rows = height;
  c.target_pitch = target_pitch;
  c.source_pitch = source_pitch;
  return c;
}

int copy_3d(const abi::Memcpy3D* p, void* stream, Blocking blocking) {
  if (p == nullptr) return abi::kInvalidValue;
  if (p->srcArray != nullptr || p->dstArray != nullptr) return abi::kNotSupported;  // CUDA arrays
  Copy c;
  c.width = p->extent.width;
  c.rows = p->extent.height;
  c.planes = p->extent.depth;
  c.source_pitch = p->srcPtr.pitch;
  c.target_pitch = p->dstPtr.pitch;
  c.source_plane = p->srcPtr.pitch * p->srcPtr.ysize;
  c.target_plane = p->dstPtr.pitch * p->dstPtr.ysize;
  c.source = static_cast<const char*>(p->srcPtr.ptr) + p->srcPos.x + p->srcPos.y * c.source_pitch +
             p->srcPos.z * c.source_plane;
  c.target =
      static_cast<char*>(p->dstPtr.ptr) + p->dstPos.x + p->dstPos.y * c.target_pitch + p->dstPos.z * c.target_plane;
  return copy(c, p->kind, stream, blocking);
}

int symbol_copy(const void* symbol, std::size_t offset, std::size_t bytes, char*& address) {
  Variable found{};
  if (const auto status = variable(symbol, found); status != abi::kSuccess) return status;
  if (offset + bytes > found.bytes) return abi::kInvalidValue;
  address = static_cast<char*>(found.address) + offset;
  return abi::kSuccess;
}

}  // namespace

extern "C" {

int cudaMemcpy(void* target, const void* source, std::size_t bytes, int kind) {
  return keep(copy(linear(target, source, bytes), kind, nullptr, Blocking::kYes));
}
int cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, int kind, void* stream) {
  return keep(copy(linear(target, source, bytes), kind, stream, Blocking::kNo));
}
int cudaMemcpy2D(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                 std::size_t width, std::size_t height, int kind) {
  return keep(copy(pitched(target, target_pitch, source, source_pitch, width, height), kind, nullptr, Blocking::kYes));
}
int cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                      std::size_t width, std::size_t height, int kind, void* stream) {
  return keep(copy(pitched(target, target_pitch, source, source_pitch, width, height), kind, stream, Blocking::kNo));
}
int cudaMemcpy3D(const abi::Memcpy3D* parameters) { return keep(copy_3d(parameters, nullptr, Blocking::kYes)); }
int cudaMemcpy3DAsync(const abi::Memcpy3D* parameters, void* stream) {
  return keep(copy_3d(parameters, stream, Blocking::kNo));
}

int cudaMemcpyPeerAsync(void* target, int, const void* source, int, std::size_t bytes, void* stream) {
  return keep(copy(linear(target, source, bytes), abi::kDeviceToDevice, stream, Blocking::kNo));
}
int cudaMemcpyPeer(void* target, int, const void* source, int, std::size_t bytes) {
  return keep(copy(linear(target, source, bytes), abi::kDeviceToDevice, nullptr, Blocking::kYes));
}

int cudaMemcpyBatchAsync(void* const* targets, const void* const* sources, const std::size_t* sizes, std::size_t count,
                         void*, std::size_t*, std::size_t, void* stream) {
  if (targets == nullptr || sources == nullptr || sizes == nullptr) return keep(abi::kInvalidValue);
  for (std::size_t i = 0; i < count; ++i) {
    const int status = copy(linear(targets[i], sources[i], sizes[i]), abi::kDefault, stream, Blocking::kNo);
    if (status != abi::kSuccess) return keep(status);
  }
  return abi::kSuccess;
}

int cudaMemcpyToSymbolAsync(const void* symbol, const void* source, std::size_t bytes, std::size_t offset, int kind,
                            void* stream) {
  char* address = nullptr;
  if (const int status = symbol_copy(symbol, offset, bytes, address); status != abi::kSuccess) return keep(status);
  return keep(copy(linear(address, source, bytes), kind, stream, Blocking::kNo));
}
int cudaMemcpyToSymbol(const void* symbol, const void* source, std::size_t bytes, std::size_t offset, int kind) {
  char* address = nullptr;
  if (const int status = symbol_copy(symbol, offset, bytes, address); status != abi::kSuccess) return keep(status);
  return keep(copy(linear(address, source, bytes), kind, nullptr, Blocking::kYes));
}
int cudaMemcpyFromSymbolAsync(void* target, const void* symbol, std::size_t bytes, std::size_t offset, int kind,
                              void* stream) {
  char* address = nullptr;
  if (const int status = symbol_copy(symbol, offset, bytes, address); status != abi::kSuccess) return keep(status);
  return keep(copy(linear(target, address, bytes), kind, stream, Blocking::kNo));
}
int cudaMemcpyFromSymbol(void* target, const void* symbol, std::size_t bytes, std::size_t offset, int kind) {
  char* address = nullptr;
  if (const int status = symbol_copy(symbol, offset, bytes, address); status != abi::kSuccess) return keep(status);
  return keep(copy(linear(target, address, bytes), kind, nullptr, Blocking::kYes));
}

int cudaMemsetAsync(void* pointer, int value, std::size_t bytes, void* stream) {
  return keep(fill(pointer, static_cast<std::uint32_t>(value & 0xff), 1, bytes, 1, bytes, stream));
}
int cudaMemset(void* pointer, int value, std::size_t bytes) { return cudaMemsetAsync(pointer, value, bytes, nullptr); }
int cudaMemset2DAsync(void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height,
                      void* stream) {
  return keep(fill(pointer, static_cast<std::uint32_t>(value & 0xff), 1, width, height, pitch, stream));
}
int cudaMemset2D(void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return cudaMemset2DAsync(pointer, pitch, value, width, height, nullptr);
}

}  // extern "C"
