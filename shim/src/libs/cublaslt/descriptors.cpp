// Creation, destruction and attributes of cuBLASLt's descriptors and handle.
#include <new>

#include "libs/bridge.hpp"
#include "libs/cublaslt/attributes.hpp"

namespace abi = phantora::abi;
namespace lt = phantora::libs::cublaslt;

namespace {

template <typename Descriptor>
int destroy(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return abi::kCublasSuccess;
}

template <typename Descriptor>
int create(void** descriptor, Descriptor*& made) {
  if (descriptor == nullptr) return abi::kCublasInvalidValue;
  made = new (std::nothrow) Descriptor;
  *descriptor = made;
  return made == nullptr ? abi::kCublasAllocFailed : abi::kCublasSuccess;
}

}  // namespace

// A cuBLAS handle may stand where a cuBLASLt handle is wanted, and torch uses that; so handles are never looked into.
PHANTORA_EXPORT int cublasLtCreate(void** handle) {
  if (handle == nullptr) return abi::kCublasInvalidValue;
  *handle = new (std::nothrow) char[16]();
  return *handle == nullptr ? abi::kCublasAllocFailed : abi::kCublasSuccess;
}
PHANTORA_EXPORT int cublasLtDestroy(void* handle) {
  if (handle == nullptr) return abi::kCublasNotInitialized;
  delete[] static_cast<char*>(handle);
  return abi::kCublasSuccess;
}
PHANTORA_EXPORT std::size_t cublasLtGetVersion() { return abi::kCublasVersion; }
PHANTORA_EXPORT std::size_t cublasLtGetCudartVersion() { return 13000; }
PHANTORA_EXPORT int cublasLtGetProperty(int type, int* value) {
  if (value == nullptr || type < 0 || type > 2) return abi::kCublasInvalidValue;
  const int parts[] = {abi::kCublasVersion / 10000, abi::kCublasVersion / 100 % 100, abi::kCublasVersion % 100};
  *value = parts[type];
  return abi::kCublasSuccess;
}

PHANTORA_EXPORT int cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                               std::int64_t leading) {
  lt::Layout* made = nullptr;
  const int status = create(layout, made);
  if (status != abi::kCublasSuccess) return status;
  made->put<std::uint32_t>(lt::kType, static_cast<std::uint32_t>(type));
  made->put<std::int32_t>(lt::kOrder, lt::kOrderColumn);
  made->put<std::uint64_t>(lt::kRows, rows);
  made->put<std::uint64_t>(lt::kColumns, columns);
  made->put<std::int64_t>(lt::kLeading, leading);
  made->put<std::int32_t>(lt::kBatch, 1);
  made->put<std::int64_t>(lt::kBatchStride, 0);
  made->put<std::int64_t>(lt::kPlaneOffset, 0);
  return abi::kCublasSuccess;
}

PHANTORA_EXPORT int cublasLtMatmulDescCreate(void** desc, int compute, int scale_type) {
  lt::MatmulDesc* made = nullptr;
  const int status = create(desc, made);
  if (status != abi::kCublasSuccess) return status;
  constexpr std::int32_t kDefaultEpilogue = 1, kFillFull = 2;
  made->put<std::int32_t>(lt::kCompute, compute);
  made->put<std::int32_t>(lt::kScaleType, scale_type);
  made->put<std::int32_t>(lt::kPointerMode, 0);
  made->put<std::int32_t>(lt::kTransposeA, 0);
  made->put<std::int32_t>(lt::kTransposeB, 0);
  made->put<std::int32_t>(lt::kTransposeC, 0);
  made->put<std::int32_t>(lt::kFill, kFillFull);
  made->put<std::int32_t>(lt::kEpilogue, kDefaultEpilogue);
  made->put<std::int32_t>(lt::kSmTarget, 0);
  return abi::kCublasSuccess;
}

PHANTORA_EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  lt::Preference* made = nullptr;
  const int status = create(preference, made);
  if (status == abi::kCublasSuccess) made->put<std::uint64_t>(lt::kMaxWorkspace, 0);
  return status;
}

PHANTORA_EXPORT int cublasLtMatrixTransformDescCreate(void** desc, int scale_type) {
  lt::TransformDesc* made = nullptr;
  const int status = create(desc, made);
  if (status == abi::kCublasSuccess) made->put<std::int32_t>(0, scale_type);
  return status;
}

PHANTORA_EXPORT int cublasLtEmulationDescCreate(void** desc) {
  lt::EmulationDesc* made = nullptr;
  return create(desc, made);
}

#define PHANTORA_DESCRIPTOR(name, Type)                                                                   \
  PHANTORA_EXPORT int cublasLt##name##Destroy(void* descriptor) { return destroy<lt::Type>(descriptor); } \
  PHANTORA_EXPORT int cublasLt##name##SetAttribute(void* descriptor, int attribute, const void* data,     \
                                                   std::size_t bytes) {                                   \
    if (descriptor == nullptr) return abi::kCublasInvalidValue;                                           \
    return static_cast<lt::Type*>(descriptor)->set(attribute, data, bytes);                               \
  }                                                                                                       \
  PHANTORA_EXPORT int cublasLt##name##GetAttribute(const void* descriptor, int attribute, void* data,     \
                                                   std::size_t bytes, std::size_t* written) {             \
    if (descriptor == nullptr) return abi::kCublasInvalidValue;                                           \
    return static_cast<const lt::Type*>(descriptor)->read(attribute, data, bytes, written);               \
  }
PHANTORA_DESCRIPTOR(MatrixLayout, Layout)
PHANTORA_DESCRIPTOR(MatmulDesc, MatmulDesc)
PHANTORA_DESCRIPTOR(MatmulPreference, Preference)
PHANTORA_DESCRIPTOR(MatrixTransformDesc, TransformDesc)
PHANTORA_DESCRIPTOR(EmulationDesc, EmulationDesc)

// Logging switches: they change what the real library writes to its log and nothing else.
PHANTORA_EXPORT int cublasLtLoggerSetLevel(int) { return abi::kCublasSuccess; }
PHANTORA_EXPORT int cublasLtLoggerSetMask(int) { return abi::kCublasSuccess; }
PHANTORA_EXPORT int cublasLtLoggerForceDisable() { return abi::kCublasSuccess; }
