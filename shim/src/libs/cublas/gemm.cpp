// Every GEMM entry point: each becomes one GemmOp with the caller's exact m, n, k, batch, types and transposes. Which
// kernel the real library would pick, and whether it would split k, is left to the cost model.
#include <cstdint>

#include "libs/cublas/handle.hpp"
#include "phantora/adaptor_api.h"

namespace abi = phantora::abi;
namespace libs = phantora::libs;
namespace cublas = phantora::libs::cublas;
using phantora::wire::DataType;

namespace {

struct Operands {
  DataType a, b, c;
  int compute;  // cublasComputeType_t
};

constexpr Operands same(DataType type, int compute) { return {type, type, type, compute}; }
constexpr Operands kS = same(DataType::kFloat32, abi::kCompute32F);
constexpr Operands kD = same(DataType::kFloat64, abi::kCompute64F);
constexpr Operands kC = same(DataType::kComplex64, abi::kCompute32F);
constexpr Operands kZ = same(DataType::kComplex128, abi::kCompute64F);
constexpr Operands kH = same(DataType::kFloat16, abi::kCompute16F);

cublas::Product product(const cublas::Handle& handle, const Operands& types, int ta, int tb, std::int64_t m,
                        std::int64_t n, std::int64_t k, std::int64_t batch) {
  cublas::Product result;
  result.m = m;
  result.n = n;
  result.k = k;
  result.batch = batch;
  result.type_a = types.a;
  result.type_b = types.b;
  result.type_c = types.c;
  result.compute = cublas::compute_type(types.compute, types.a, handle.math_mode);
  result.transpose_a = ta;
  result.transpose_b = tb;
  return result;
}

bool shape_wrong(int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda, std::int64_t ldb,
                 std::int64_t ldc) {
  auto least = [](std::int64_t rows) { return rows > 1 ? rows : 1; };
  return ta < 0 || ta > 2 || tb < 0 || tb > 2 || m < 0 || n < 0 || k < 0 || lda < least(ta == 0 ? m : k) ||
         ldb < least(tb == 0 ? k : n) || ldc < least(m);
}

int gemm(const char* entry, void* handle, const Operands& types, int ta, int tb, std::int64_t m, std::int64_t n,
         std::int64_t k, std::int64_t lda, std::int64_t ldb, void* c, std::int64_t ldc, std::int64_t stride_c = 0,
         std::int64_t batch = 1) {
  cublas::Handle* state = cublas::from(handle);
  if (state == nullptr) return abi::kCublasNotInitialized;
  if (types.a == DataType::kNone || types.b == DataType::kNone || types.c == DataType::kNone) {
    libs::unsupported(entry, "an unknown data type");
    return abi::kCublasNotSupported;
  }
  if (batch < 0 || shape_wrong(ta, tb, m, n, k, lda, ldb, ldc)) return abi::kCublasInvalidValue;
  cublas::issue(state->stream, entry, product(*state, types, ta, tb, m, n, k, batch));
  const std::size_t bytes = libs::bytes_of(types.c);
  if (ldc == m && (batch == 1 || stride_c == ldc * n)) {
    libs::mark_unknown(c, static_cast<std::size_t>(m * n * batch) * bytes);
  } else {
    for (std::int64_t i = 0; i < batch; ++i)
      libs::mark_unknown_matrix(static_cast<char*>(c) + static_cast<std::size_t>(i * stride_c) * bytes,
                                static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n),
                                static_cast<std::uint64_t>(ldc), bytes);
  }
  return abi::kCublasSuccess;
}

// The outputs of a pointer-array call: the array lies in device memory, so its entries can be followed only when they
// are real values. Otherwise the outputs keep what they hold until the torch adaptor marks the tensors.
void mark_pointers(void* const* outputs, std::int64_t count, std::int64_t m, std::int64_t n, std::int64_t ldc,
                   std::size_t bytes) {
  const std::size_t span = static_cast<std::size_t>(count) * sizeof(void*);
  if (count <= 0 || phantora::client::values_pending()) return;
  if (phantora_is_device_pointer(outputs) != 0 && phantora_is_known(outputs, span) == 0) return;
  for (std::int64_t i = 0; i < count; ++i)
    if (phantora_is_device_pointer(outputs[i]) != 0)
      libs::mark_unknown_matrix(outputs[i], static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n),
                                static_cast<std::uint64_t>(ldc), bytes);
}

int gemm_pointers(const char* entry, void* handle, const Operands& types, int ta, int tb, std::int64_t m,
                  std::int64_t n, std::int64_t k, std::int64_t lda, std::int64_t ldb, void* const* c, std::int64_t ldc,
                  std::int64_t batch) {
  cublas::Handle* state = cublas::from(handle);
  if (state == nullptr) return abi::kCublasNotInitialized;
  if (batch < 0 || shape_wrong(ta, tb, m, n, k, lda, ldb, ldc)) return abi::kCublasInvalidValue;
  cublas::issue(state->stream, entry, product(*state, types, ta, tb, m, n, k, batch));
  mark_pointers(c, batch, m, n, ldc, libs::bytes_of(types.c));
  return abi::kCublasSuccess;
}

// One kernel for many products. Groups that differ in m alone (tokens per expert) are one record with the sum of their
// rows; groups that differ otherwise are one record each.
template <typename Index>
int grouped(const char* entry, void* handle, const Operands& types, const int* ta, const int* tb, const Index* m,
            const Index* n, const Index* k, Index groups, const Index* sizes) {
  cublas::Handle* state = cublas::from(handle);
  if (state == nullptr) return abi::kCublasNotInitialized;
  if (groups < 0) return abi::kCublasInvalidValue;
  bool one_kind = true;
  std::int64_t rows = 0;
  for (Index i = 0; i < groups; ++i) {
    one_kind = one_kind && n[i] == n[0] && k[i] == k[0] && ta[i] == ta[0] && tb[i] == tb[0];
    rows += static_cast<std::int64_t>(m[i]) * sizes[i];
  }
  for (Index i = 0; i < (one_kind ? (groups > 0 ? 1 : 0) : groups); ++i) {
    cublas::Product one =
        product(*state, types, ta[i], tb[i], one_kind ? rows : m[i], n[i], k[i], one_kind ? 1 : sizes[i]);
    one.grouped = true;
    cublas::issue(state->stream, entry, one);
  }
  return abi::kCublasSuccess;
}

Operands of(int a, int b, int c, int compute) {
  return {libs::from_cuda_type(a), libs::from_cuda_type(b), libs::from_cuda_type(c), compute};
}

}  // namespace

// suffix_v2: the suffix of the plain call; suffix: that of the batched ones; Index: int, or int64_t for the _64
// variants.
#define PHANTORA_GEMM(letter, suffix_v2, suffix, Index)                                                                \
  PHANTORA_EXPORT int cublas##letter##gemm##suffix_v2(void* handle, int ta, int tb, Index m, Index n, Index k,         \
                                                      const void*, const void*, Index lda, const void*, Index ldb,     \
                                                      const void*, void* c, Index ldc) {                               \
    return gemm("cublas" #letter "gemm", handle, k##letter, ta, tb, m, n, k, lda, ldb, c, ldc);                        \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublas##letter##gemmStridedBatched##suffix(                                                      \
      void* handle, int ta, int tb, Index m, Index n, Index k, const void*, const void*, Index lda, long long,         \
      const void*, Index ldb, long long, const void*, void* c, Index ldc, long long stride_c, Index batch) {           \
    return gemm("cublas" #letter "gemmStridedBatched", handle, k##letter, ta, tb, m, n, k, lda, ldb, c, ldc, stride_c, \
                batch);                                                                                                \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublas##letter##gemmBatched##suffix(                                                             \
      void* handle, int ta, int tb, Index m, Index n, Index k, const void*, const void* const*, Index lda,             \
      const void* const*, Index ldb, const void*, void* const* c, Index ldc, Index batch) {                            \
    return gemm_pointers("cublas" #letter "gemmBatched", handle, k##letter, ta, tb, m, n, k, lda, ldb, c, ldc, batch); \
  }

PHANTORA_GEMM(S, _v2, , int)
PHANTORA_GEMM(D, _v2, , int)
PHANTORA_GEMM(C, _v2, , int)
PHANTORA_GEMM(Z, _v2, , int)
PHANTORA_GEMM(H, , , int)
PHANTORA_GEMM(S, _v2_64, _64, std::int64_t)
PHANTORA_GEMM(D, _v2_64, _64, std::int64_t)
PHANTORA_GEMM(C, _v2_64, _64, std::int64_t)
PHANTORA_GEMM(Z, _v2_64, _64, std::int64_t)
PHANTORA_GEMM(H, _64, _64, std::int64_t)

#define PHANTORA_GEMM_EX(suffix, Index)                                                                                \
  PHANTORA_EXPORT int cublasGemmEx##suffix(void* handle, int ta, int tb, Index m, Index n, Index k, const void*,       \
                                           const void*, int type_a, Index lda, const void*, int type_b, Index ldb,     \
                                           const void*, void* c, int type_c, Index ldc, int compute, int) {            \
    return gemm("cublasGemmEx", handle, of(type_a, type_b, type_c, compute), ta, tb, m, n, k, lda, ldb, c, ldc);       \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublasGemmStridedBatchedEx##suffix(                                                              \
      void* handle, int ta, int tb, Index m, Index n, Index k, const void*, const void*, int type_a, Index lda,        \
      long long, const void*, int type_b, Index ldb, long long, const void*, void* c, int type_c, Index ldc,           \
      long long stride_c, Index batch, int compute, int) {                                                             \
    return gemm("cublasGemmStridedBatchedEx", handle, of(type_a, type_b, type_c, compute), ta, tb, m, n, k, lda, ldb,  \
                c, ldc, stride_c, batch);                                                                              \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublasGemmBatchedEx##suffix(                                                                     \
      void* handle, int ta, int tb, Index m, Index n, Index k, const void*, const void* const*, int type_a, Index lda, \
      const void* const*, int type_b, Index ldb, const void*, void* const* c, int type_c, Index ldc, Index batch,      \
      int compute, int) {                                                                                              \
    return gemm_pointers("cublasGemmBatchedEx", handle, of(type_a, type_b, type_c, compute), ta, tb, m, n, k, lda,     \
                         ldb, c, ldc, batch);                                                                          \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublasSgemmEx##suffix(void* handle, int ta, int tb, Index m, Index n, Index k, const void*,      \
                                            const void*, int type_a, Index lda, const void*, int type_b, Index ldb,    \
                                            const void*, void* c, int type_c, Index ldc) {                             \
    return gemm("cublasSgemmEx", handle, of(type_a, type_b, type_c, abi::kCompute32F), ta, tb, m, n, k, lda, ldb, c,   \
                ldc);                                                                                                  \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublasGemmGroupedBatchedEx##suffix(                                                              \
      void* handle, const int* ta, const int* tb, const Index* m, const Index* n, const Index* k, const void*,         \
      const void* const*, int type_a, const Index*, const void* const*, int type_b, const Index*, const void*,         \
      void* const*, int type_c, const Index*, Index groups, const Index* sizes, int compute) {                         \
    return grouped("cublasGemmGroupedBatchedEx", handle, of(type_a, type_b, type_c, compute), ta, tb, m, n, k, groups, \
                   sizes);                                                                                             \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublasSgemmGroupedBatched##suffix(                                                               \
      void* handle, const int* ta, const int* tb, const Index* m, const Index* n, const Index* k, const void*,         \
      const void* const*, const Index*, const void* const*, const Index*, const void*, void* const*, const Index*,     \
      Index groups, const Index* sizes) {                                                                              \
    return grouped("cublasSgemmGroupedBatched", handle, kS, ta, tb, m, n, k, groups, sizes);                           \
  }                                                                                                                    \
  PHANTORA_EXPORT int cublasDgemmGroupedBatched##suffix(                                                               \
      void* handle, const int* ta, const int* tb, const Index* m, const Index* n, const Index* k, const void*,         \
      const void* const*, const Index*, const void* const*, const Index*, const void*, void* const*, const Index*,     \
      Index groups, const Index* sizes) {                                                                              \
    return grouped("cublasDgemmGroupedBatched", handle, kD, ta, tb, m, n, k, groups, sizes);                           \
  }

PHANTORA_GEMM_EX(, int)
PHANTORA_GEMM_EX(_64, std::int64_t)
