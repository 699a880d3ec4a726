// cuBLAS handles: streams, workspaces and modes are kept so that they read back, and cost nothing.
#include "libs/cublas/handle.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace phantora::libs::cublas {
namespace {

constexpr std::uint64_t kMagic = 0x63756261736c6850ULL;
// NVIDIA's cuBLAS documentation, cublasSetWorkspace: the default workspace is 32 MiB on sm_90 and Blackwell data-centre
// parts, 4 MiB on others, and is allocated with the handle. What the library's own kernels take besides: assumed 0,
// since CUDA 12 loads them lazily.
constexpr std::size_t kWorkspaceHopper = 32U << 20;
constexpr std::size_t kWorkspaceOther = 4U << 20;

std::size_t default_workspace() {
  const wire::RunHeader* header = client::header();
  if (header == nullptr) return 0;
  const std::uint64_t major = header->gpu.compute_major;
  return major == 9 || major == 10 ? kWorkspaceHopper : kWorkspaceOther;
}

std::uint32_t clamp(std::int64_t value) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

Handle* from(void* handle) {
  auto* state = static_cast<Handle*>(handle);
  return state != nullptr && state->magic == kMagic ? state : nullptr;
}

void issue(void* stream, const char* entry, const Product& product) {
  if (product.m <= 0 || product.n <= 0 || product.batch <= 0) return;  // the real library launches nothing either
  wire::Record record{};
  record.type = wire::RecordType::kGemm;
  wire::GemmOp& gemm = record.gemm;
  gemm.m = clamp(product.m);
  gemm.n = clamp(product.n);
  gemm.k = clamp(product.k);
  gemm.batch = clamp(product.batch);
  gemm.type_a = product.type_a;
  gemm.type_b = product.type_b;
  gemm.type_c = product.type_c;
  gemm.compute = product.compute;
  gemm.transpose_a = static_cast<std::uint8_t>(product.transpose_a);
  gemm.transpose_b = static_cast<std::uint8_t>(product.transpose_b);
  gemm.epilogue = static_cast<std::uint8_t>(product.epilogue);
  gemm.grouped = product.grouped ? 1 : 0;
  gemm.name = client::intern(entry);
  enqueue(stream, client::CallKind::kGemm, record);
}

wire::DataType compute_type(int cublas_compute, wire::DataType operand, int math_mode) {
  using wire::DataType;
  switch (cublas_compute) {
    case abi::kCompute16F:
    case abi::kCompute16FPedantic:
    case abi::kCompute32FFast16F:
      return DataType::kFloat16;
    case abi::kCompute32FFast16BF:
      return DataType::kBfloat16;
    case abi::kCompute32FFastTf32:
      return DataType::kTf32;
    case abi::kCompute64F:
    case abi::kCompute64FPedantic:
      return DataType::kFloat64;
    case abi::kCompute32I:
    case abi::kCompute32IPedantic:
      return DataType::kInt32;
    default:
      break;
  }
  const bool single = operand == DataType::kFloat32 || operand == DataType::kComplex64;
  return single && (math_mode & 0xf) == abi::kMathTf32 ? DataType::kTf32 : DataType::kFloat32;
}

}  // namespace phantora::libs::cublas

using phantora::libs::cublas::from;
using phantora::libs::cublas::Handle;
namespace abi = phantora::abi;
namespace libs = phantora::libs;
namespace wire = phantora::wire;

namespace {

// Runs `use` on the handle, or says that there is none.
template <typename Use>
int with(void* handle, Use use) {
  Handle* state = from(handle);
  if (state == nullptr) return abi::kCublasNotInitialized;
  use(*state);
  return abi::kCublasSuccess;
}

}  // namespace

PHANTORA_EXPORT int cublasCreate_v2(void** handle) {
  if (handle == nullptr) return abi::kCublasInvalidValue;
  auto* state = new (std::nothrow) Handle{};
  if (state == nullptr) return abi::kCublasAllocFailed;
  state->device = libs::current_node_device();
  state->default_workspace = libs::cublas::default_workspace();
  if (!libs::take_memory(state->device, state->default_workspace, wire::MemoryKind::kLibrary)) {
    delete state;
    return abi::kCublasAllocFailed;
  }
  state->magic = libs::cublas::kMagic;
  state->atomics = 0;
  *handle = state;
  return abi::kCublasSuccess;
}

PHANTORA_EXPORT int cublasDestroy_v2(void* handle) {
  return with(handle, [](Handle& state) {
    libs::give_memory(state.device, state.default_workspace, wire::MemoryKind::kLibrary);
    state.magic = 0;
    delete &state;
  });
}

PHANTORA_EXPORT int cublasGetVersion_v2(void*, int* version) {
  if (version == nullptr) return abi::kCublasInvalidValue;
  *version = abi::kCublasVersion;
  return abi::kCublasSuccess;
}
PHANTORA_EXPORT int cublasGetProperty(int type, int* value) {
  if (value == nullptr || type < 0 || type > 2) return abi::kCublasInvalidValue;
  const int parts[] = {abi::kCublasVersion / 10000, abi::kCublasVersion / 100 % 100, abi::kCublasVersion % 100};
  *value = parts[type];
  return abi::kCublasSuccess;
}
PHANTORA_EXPORT std::size_t cublasGetCudartVersion() { return 13000; }

PHANTORA_EXPORT int cublasSetStream_v2(void* handle, void* stream) {
  return with(handle, [&](Handle& state) {
    state.stream = stream;
    state.workspace = nullptr;  // the real library goes back to its default workspace here
    state.workspace_bytes = 0;
  });
}
PHANTORA_EXPORT int cublasGetStream_v2(void* handle, void** stream) {
  return with(handle, [&](Handle& state) { *stream = state.stream; });
}
PHANTORA_EXPORT int cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t bytes) {
  return with(handle, [&](Handle& state) {
    state.workspace = workspace;
    state.workspace_bytes = bytes;
  });
}
PHANTORA_EXPORT int cublasSetPointerMode_v2(void* handle, int mode) {
  return with(handle, [&](Handle& state) { state.pointer_mode = mode; });
}
PHANTORA_EXPORT int cublasGetPointerMode_v2(void* handle, int* mode) {
  return with(handle, [&](Handle& state) { *mode = state.pointer_mode; });
}
PHANTORA_EXPORT int cublasSetMathMode(void* handle, int mode) {
  return with(handle, [&](Handle& state) { state.math_mode = mode; });
}
PHANTORA_EXPORT int cublasGetMathMode(void* handle, int* mode) {
  return with(handle, [&](Handle& state) { *mode = state.math_mode; });
}
PHANTORA_EXPORT int cublasSetAtomicsMode(void* handle, int mode) {
  return with(handle, [&](Handle& state) { state.atomics = mode; });
}
PHANTORA_EXPORT int cublasGetAtomicsMode(void* handle, int* mode) {
  return with(handle, [&](Handle& state) { *mode = state.atomics; });
}
PHANTORA_EXPORT int cublasSetSmCountTarget(void* handle, int count) {
  return with(handle, [&](Handle& state) { state.sm_target = count; });
}
PHANTORA_EXPORT int cublasGetSmCountTarget(void* handle, int* count) {
  return with(handle, [&](Handle& state) { *count = state.sm_target; });
}
PHANTORA_EXPORT int cublasSetEmulationStrategy(void* handle, int strategy) {
  return with(handle, [&](Handle& state) { state.emulation_strategy = strategy; });
}
PHANTORA_EXPORT int cublasGetEmulationStrategy(void* handle, int* strategy) {
  return with(handle, [&](Handle& state) { *strategy = state.emulation_strategy; });
}

namespace {

struct StatusName {
  int status;
  const char* name;
  const char* text;
};
constexpr StatusName kStatusNames[] = {
    {abi::kCublasSuccess, "CUBLAS_STATUS_SUCCESS", "success"},
    {abi::kCublasNotInitialized, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {abi::kCublasAllocFailed, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {abi::kCublasInvalidValue, "CUBLAS_STATUS_INVALID_VALUE", "an invalid value was given"},
    {abi::kCublasArchMismatch, "CUBLAS_STATUS_ARCH_MISMATCH", "an architecture feature is absent"},
    {abi::kCublasMappingError, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {abi::kCublasExecutionFailed, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute"},
    {abi::kCublasInternalError, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {abi::kCublasNotSupported, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality is not supported"},
};

}  // namespace

PHANTORA_EXPORT const char* cublasGetStatusName(int status) {
  for (const StatusName& entry : kStatusNames)
    if (entry.status == status) return entry.name;
  return "CUBLAS_STATUS_UNKNOWN";
}
PHANTORA_EXPORT const char* cublasGetStatusString(int status) {
  for (const StatusName& entry : kStatusNames)
    if (entry.status == status) return entry.text;
  return "unknown status";
}
PHANTORA_EXPORT const char* cublasLtGetStatusName(int status) { return cublasGetStatusName(status); }
PHANTORA_EXPORT const char* cublasLtGetStatusString(int status) { return cublasGetStatusString(status); }
