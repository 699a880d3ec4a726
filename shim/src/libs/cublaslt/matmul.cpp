// cublasLtMatmul as a GemmOp, and heuristics that offer one algorithm: which kernel would be chosen is the cost
// model's.
#include <cstring>

#include "libs/cublas/handle.hpp"
#include "libs/cublaslt/attributes.hpp"

namespace abi = phantora::abi;
namespace libs = phantora::libs;
namespace lt = phantora::libs::cublaslt;
namespace wire = phantora::wire;

namespace {

struct Problem {
  phantora::libs::cublas::Product product;
  std::uint64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;  // of D
};

// GemmOp::epilogue: bits of what is fused. cublasLtEpilogue_t does not fit a byte.
std::uint8_t epilogue_bits(std::int32_t epilogue) {
  enum { kRelu = 1, kBias = 2, kGelu = 4, kAuxiliary = 8, kActivationGradient = 16, kBiasGradient = 32 };
  std::uint8_t bits = 0;
  if ((epilogue & 2) != 0) bits |= kRelu;
  if ((epilogue & 4) != 0) bits |= kBias;
  if ((epilogue & 32) != 0) bits |= kGelu;
  if ((epilogue & 128) != 0) bits |= kAuxiliary;
  if ((epilogue & (8 | 64)) != 0) bits |= kActivationGradient;
  if ((epilogue & (16 | 256 | 512)) != 0) bits |= kBiasGradient;
  return bits;
}

// op(A) is m x k, op(B) k x n. Row-major layouts are told apart by ORDER; rows and columns are those of the matrix
// either way.
int understand(const void* desc, const void* a, const void* b, const void* c, const void* d, Problem& problem) {
  if (desc == nullptr || a == nullptr || b == nullptr || d == nullptr) return abi::kCublasInvalidValue;
  const auto& operation = *static_cast<const lt::MatmulDesc*>(desc);
  const auto& in_a = *static_cast<const lt::Layout*>(a);
  const auto& in_b = *static_cast<const lt::Layout*>(b);
  const auto& out = *static_cast<const lt::Layout*>(d);
  const auto transpose_a = operation.get<std::int32_t>(lt::kTransposeA, 0);
  const auto transpose_b = operation.get<std::int32_t>(lt::kTransposeB, 0);
  const auto rows = [](const lt::Layout& layout) { return layout.get<std::uint64_t>(lt::kRows, 0); };
  const auto columns = [](const lt::Layout& layout) { return layout.get<std::uint64_t>(lt::kColumns, 0); };
  const std::uint64_t m = transpose_a == 0 ? rows(in_a) : columns(in_a),
                      k = transpose_a == 0 ? columns(in_a) : rows(in_a);
  const std::uint64_t n = transpose_b == 0 ? columns(in_b) : rows(in_b),
                      kb = transpose_b == 0 ? rows(in_b) : columns(in_b);
  if (k != kb || rows(out) != m || columns(out) != n) return abi::kCublasInvalidValue;
  if (c != nullptr &&
      (rows(*static_cast<const lt::Layout*>(c)) != m || columns(*static_cast<const lt::Layout*>(c)) != n))
    return abi::kCublasInvalidValue;
  auto& product = problem.product;
  const auto type = [](const lt::Layout& layout) {
    return libs::from_cuda_type(static_cast<int>(layout.get<std::uint32_t>(lt::kType, 0)));
  };
  product.m = static_cast<std::int64_t>(m);
  product.n = static_cast<std::int64_t>(n);
  product.k = static_cast<std::int64_t>(k);
  product.batch = out.get<std::int32_t>(lt::kBatch, 1);
  product.type_a = type(in_a);
  product.type_b = type(in_b);
  product.type_c = type(out);
  product.compute =
      libs::cublas::compute_type(operation.get<std::int32_t>(lt::kCompute, abi::kCompute32F), product.type_a, 0);
  product.transpose_a = transpose_a;
  product.transpose_b = transpose_b;
  product.epilogue = epilogue_bits(operation.get<std::int32_t>(lt::kEpilogue, 1));
  if (product.type_a == wire::DataType::kNone || product.type_b == wire::DataType::kNone ||
      product.type_c == wire::DataType::kNone)
    return abi::kCublasNotSupported;
  const bool row_major = out.get<std::int32_t>(lt::kOrder, lt::kOrderColumn) == lt::kOrderRow;
  problem.rows = row_major ? n : m;
  problem.columns = row_major ? m : n;
  problem.leading = static_cast<std::uint64_t>(out.get<std::int64_t>(lt::kLeading, 0));
  problem.batch_stride = static_cast<std::uint64_t>(out.get<std::int64_t>(lt::kBatchStride, 0));
  return abi::kCublasSuccess;
}

// What the one algorithm we offer asks for: as most of Hopper's kernels, no workspace of its own.
void fill(abi::LtHeuristicResult& result) {
  std::memset(&result, 0, sizeof result);
  result.state = abi::kCublasSuccess;
  result.waves = 1.0F;
}

void mark(void* d, const Problem& problem) {
  const std::size_t element = libs::bytes_of(problem.product.type_c);
  const std::uint64_t one = problem.leading * problem.columns;
  const auto batch = static_cast<std::uint64_t>(problem.product.batch);
  if (problem.leading == problem.rows && (batch == 1 || problem.batch_stride == one))
    return libs::mark_unknown(d, one * batch * element);
  for (std::uint64_t i = 0; i < batch; ++i)
    libs::mark_unknown_matrix(static_cast<char*>(d) + i * problem.batch_stride * element, problem.rows, problem.columns,
                              problem.leading, element);
}

}  // namespace

PHANTORA_EXPORT int cublasLtMatmul(void* handle, const void* desc, const void*, const void*, const void* a_layout,
                                   const void*, const void* b_layout, const void*, const void*, const void* c_layout,
                                   void* d, const void* d_layout, const void*, void*, std::size_t, void* stream) {
  if (handle == nullptr) return abi::kCublasNotInitialized;
  Problem problem;
  const int status = understand(desc, a_layout, b_layout, c_layout, d_layout, problem);
  if (status != abi::kCublasSuccess) {
    if (status == abi::kCublasNotSupported) libs::unsupported("cublasLtMatmul", "an unknown data type");
    return status;
  }
  libs::cublas::issue(stream, "cublasLtMatmul", problem.product);
  mark(d, problem);
  return abi::kCublasSuccess;
}

PHANTORA_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, const void* desc, const void* a, const void* b, const void* c,
                                                   const void* d, const void*, int requested,
                                                   abi::LtHeuristicResult* results, int* found) {
  if (found == nullptr || results == nullptr || requested < 1) return abi::kCublasInvalidValue;
  *found = 0;
  Problem problem;
  const int status = understand(desc, a, b, c, d, problem);
  if (status != abi::kCublasSuccess) return status;
  fill(results[0]);
  *found = 1;
  return abi::kCublasSuccess;
}

PHANTORA_EXPORT int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int requested, int* ids, int* found) {
  if (ids == nullptr || requested < 1) return abi::kCublasInvalidValue;
  ids[0] = 0;
  if (found != nullptr) *found = 1;
  return abi::kCublasSuccess;
}
PHANTORA_EXPORT int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int id, abi::LtMatmulAlgo* algo) {
  if (algo == nullptr || id != 0) return abi::kCublasInvalidValue;
  std::memset(algo, 0, sizeof *algo);
  return abi::kCublasSuccess;
}
PHANTORA_EXPORT int cublasLtMatmulAlgoCheck(void*, const void* desc, const void* a, const void* b, const void* c,
                                            const void* d, const abi::LtMatmulAlgo* algo,
                                            abi::LtHeuristicResult* result) {
  if (algo == nullptr || result == nullptr) return abi::kCublasInvalidValue;
  Problem problem;
  const int status = understand(desc, a, b, c, d, problem);
  const abi::LtMatmulAlgo kept = result->algo;  // never updated here
  fill(*result);
  result->algo = kept;
  result->state = status;
  return status;
}

// The algorithm is opaque to callers: its configuration words are kept in it, four bytes an attribute.
PHANTORA_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(abi::LtMatmulAlgo* algo, int attribute, const void* data,
                                                         std::size_t bytes) {
  constexpr int kAttributes = sizeof(abi::LtMatmulAlgo) / 4;
  if (algo == nullptr || attribute < 0 || attribute >= kAttributes || data == nullptr || bytes == 0 || bytes > 4)
    return abi::kCublasInvalidValue;
  auto* slot = reinterpret_cast<char*>(algo) + attribute * 4;
  std::memset(slot, 0, 4);
  std::memcpy(slot, data, bytes);
  return abi::kCublasSuccess;
}
PHANTORA_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const abi::LtMatmulAlgo* algo, int attribute, void* data,
                                                         std::size_t bytes, std::size_t* written) {
  constexpr int kAttributes = sizeof(abi::LtMatmulAlgo) / 4;
  if (algo == nullptr || attribute < 0 || attribute >= kAttributes) return abi::kCublasInvalidValue;
  if (written != nullptr) *written = 4;
  if (bytes == 0) return written == nullptr ? abi::kCublasInvalidValue : abi::kCublasSuccess;
  if (data == nullptr || bytes > 4) return abi::kCublasInvalidValue;
  std::memcpy(data, reinterpret_cast<const char*>(algo) + attribute * 4, bytes);
  return abi::kCublasSuccess;
}

// Moves a matrix into another layout: a pass over it, recorded as a copy inside the device.
PHANTORA_EXPORT int cublasLtMatrixTransform(void* handle, const void* desc, const void*, const void*,
                                            const void* a_layout, const void*, const void*, const void*, void* c,
                                            const void* c_layout, void* stream) {
  if (handle == nullptr) return abi::kCublasNotInitialized;
  if (desc == nullptr || a_layout == nullptr || c_layout == nullptr) return abi::kCublasInvalidValue;
  const auto& out = *static_cast<const lt::Layout*>(c_layout);
  const wire::DataType type = libs::from_cuda_type(static_cast<int>(out.get<std::uint32_t>(lt::kType, 0)));
  const std::uint64_t elements = out.get<std::uint64_t>(lt::kRows, 0) * out.get<std::uint64_t>(lt::kColumns, 0) *
                                 static_cast<std::uint64_t>(out.get<std::int32_t>(lt::kBatch, 1));
  wire::Record record{};
  record.type = wire::RecordType::kMemcpy;
  record.copy.bytes = elements * libs::bytes_of(type);
  record.copy.kind = wire::CopyKind::kDeviceToDevice;
  libs::enqueue(stream, phantora::client::CallKind::kLibrary, record);
  libs::mark_unknown(c, record.copy.bytes);
  return abi::kCublasSuccess;
}
