// Levels 1 to 3 of BLAS and the batched factorisations, as products of equal work:
//   dot, nrm2, asum, amax   1 x 1 x n            axpy, copy, swap, scal, rot   n x 1 x 1
//   gemv, symv              m x 1 x n            trmv, trsv                    n x 1 x n/2
//   ger, syr (2)            m x n x 1 (2)        syrk, herk (2k)               n x n/2 x k (2k)
//   symm, hemm              m x n x side         trmm, trsm                    m x n x side/2
//   getrf                   n x n x n/3          getrs, geqrf, gels            n x nrhs x n, m x n x 2n/3, both
// Only the product's size, types and batch matter to the cost; outputs become unknown.
#include <cstring>

#include "libs/cublas/handle.hpp"
#include "phantora/adaptor_api.h"

namespace abi = phantora::abi;
namespace libs = phantora::libs;
namespace cublas = phantora::libs::cublas;
using phantora::wire::DataType;

namespace {

constexpr DataType kS = DataType::kFloat32, kD = DataType::kFloat64, kC = DataType::kComplex64,
                   kZ = DataType::kComplex128;

struct Output {
  void* pointer;
  std::int64_t rows, columns = 1, ld = 0;
};

cublas::Handle* issue(const char* entry, void* handle, DataType type, std::int64_t m, std::int64_t n, std::int64_t k,
                      std::int64_t batch = 1) {
  cublas::Handle* state = cublas::from(handle);
  if (state == nullptr) return nullptr;
  cublas::Product product;
  product.m = m;
  product.n = n;
  product.k = k;
  product.batch = batch;
  product.type_a = product.type_b = product.type_c = type;
  const bool wide = type == kD || type == kZ;
  product.compute = cublas::compute_type(wide ? abi::kCompute64F : abi::kCompute32F, type, state->math_mode);
  cublas::issue(state->stream, entry, product);
  return state;
}

int level(const char* entry, void* handle, DataType type, std::int64_t m, std::int64_t n, std::int64_t k,
          const Output& output) {
  if (issue(entry, handle, type, m, n, k) == nullptr) return abi::kCublasNotInitialized;
  if (output.rows > 0 && output.columns > 0) {
    const auto rows = static_cast<std::uint64_t>(output.rows);
    const auto ld = output.ld > 0 ? static_cast<std::uint64_t>(output.ld) : rows;
    libs::mark_unknown_matrix(output.pointer, rows, static_cast<std::uint64_t>(output.columns), ld,
                              libs::bytes_of(type));
  }
  return abi::kCublasSuccess;
}

// A strided vector is marked with its gaps: |inc| is 1 in all calls torch makes.
Output vector(void* pointer, std::int64_t count, std::int64_t increment) {
  const std::int64_t step = increment < 0 ? -increment : increment;
  return {pointer, count > 0 ? (count - 1) * (step > 0 ? step : 1) + 1 : 0};
}

// A reduction to one scalar. In host pointer mode the real call waits for the stream; unknown results read as zero.
int scalar(const char* entry, void* handle, DataType type, std::int64_t count, void* result, std::size_t bytes) {
  cublas::Handle* state = issue(entry, handle, type, 1, 1, count);
  if (state == nullptr) return abi::kCublasNotInitialized;
  if (state->pointer_mode != abi::kPointerModeHost) {
    libs::mark_unknown(result, bytes);
    return abi::kCublasSuccess;
  }
  libs::wait(state->stream);
  std::memset(result, 0, bytes);
  phantora::client::note("note", std::string(entry) + " in host pointer mode gave 0: its result is not computed");
  return abi::kCublasSuccess;
}

std::int64_t half(std::int64_t value) { return (value + 1) / 2; }

}  // namespace

#define API PHANTORA_EXPORT int
#define NAME(call) "cublas" call

#define PHANTORA_VECTOR_CALLS(L)                                                                          \
  API cublas##L##axpy_v2(void* h, int n, const void*, const void*, int, void* y, int incy) {              \
    return level(NAME(#L "axpy"), h, k##L, n, 1, 1, vector(y, n, incy));                                  \
  }                                                                                                       \
  API cublas##L##copy_v2(void* h, int n, const void*, int, void* y, int incy) {                           \
    return level(NAME(#L "copy"), h, k##L, n, 1, 1, vector(y, n, incy));                                  \
  }                                                                                                       \
  API cublas##L##swap_v2(void* h, int n, void* x, int incx, void* y, int incy) {                          \
    libs::mark_unknown(x, static_cast<std::size_t>(vector(x, n, incx).rows) * libs::bytes_of(k##L));      \
    return level(NAME(#L "swap"), h, k##L, n, 1, 1, vector(y, n, incy));                                  \
  }                                                                                                       \
  API cublas##L##scal_v2(void* h, int n, const void*, void* x, int incx) {                                \
    return level(NAME(#L "scal"), h, k##L, n, 1, 1, vector(x, n, incx));                                  \
  }                                                                                                       \
  API cublas##L##rot_v2(void* h, int n, void* x, int incx, void* y, int incy, const void*, const void*) { \
    libs::mark_unknown(x, static_cast<std::size_t>(vector(x, n, incx).rows) * libs::bytes_of(k##L));      \
    return level(NAME(#L "rot"), h, k##L, n, 1, 1, vector(y, n, incy));                                   \
  }

PHANTORA_VECTOR_CALLS(S)
PHANTORA_VECTOR_CALLS(D)
PHANTORA_VECTOR_CALLS(C)
PHANTORA_VECTOR_CALLS(Z)

// Complex vectors with real factors.
#define PHANTORA_REAL_FACTOR(call_scal, call_rot, type)                                                       \
  API cublas##call_scal##_v2(void* h, int n, const void*, void* x, int incx) {                                \
    return level(NAME(#call_scal), h, type, n, 1, 1, vector(x, n, incx));                                     \
  }                                                                                                           \
  API cublas##call_rot##_v2(void* h, int n, void* x, int incx, void* y, int incy, const void*, const void*) { \
    libs::mark_unknown(x, static_cast<std::size_t>(vector(x, n, incx).rows) * libs::bytes_of(type));          \
    return level(NAME(#call_rot), h, type, n, 1, 1, vector(y, n, incy));                                      \
  }
PHANTORA_REAL_FACTOR(Csscal, Csrot, kC)
PHANTORA_REAL_FACTOR(Zdscal, Zdrot, kZ)

#define PHANTORA_ROTM(L)                                                                             \
  API cublas##L##rotm_v2(void* h, int n, void* x, int incx, void* y, int incy, const void*) {        \
    libs::mark_unknown(x, static_cast<std::size_t>(vector(x, n, incx).rows) * libs::bytes_of(k##L)); \
    return level(NAME(#L "rotm"), h, k##L, n, 1, 1, vector(y, n, incy));                             \
  }
PHANTORA_ROTM(S)
PHANTORA_ROTM(D)

// Reductions: (call, operand type, result bytes).
#define PHANTORA_DOT(call, type, bytes)                                                     \
  API cublas##call##_v2(void* h, int n, const void*, int, const void*, int, void* result) { \
    return scalar(NAME(#call), h, type, n, result, bytes);                                  \
  }
PHANTORA_DOT(Sdot, kS, 4)
PHANTORA_DOT(Ddot, kD, 8)
PHANTORA_DOT(Cdotu, kC, 8)
PHANTORA_DOT(Cdotc, kC, 8)
PHANTORA_DOT(Zdotu, kZ, 16)
PHANTORA_DOT(Zdotc, kZ, 16)

API cublasDotEx(void* h, int n, const void*, int type_x, int, const void*, int, int, void* result, int type_result,
                int) {
  return scalar("cublasDotEx", h, libs::from_cuda_type(type_x), n, result,
                libs::bytes_of(libs::from_cuda_type(type_result)));
}

#define PHANTORA_REDUCE(call, type, bytes)                                \
  API cublas##call##_v2(void* h, int n, const void*, int, void* result) { \
    return scalar(NAME(#call), h, type, n, result, bytes);                \
  }
PHANTORA_REDUCE(Snrm2, kS, 4)
PHANTORA_REDUCE(Dnrm2, kD, 8)
PHANTORA_REDUCE(Scnrm2, kC, 4)
PHANTORA_REDUCE(Dznrm2, kZ, 8)
PHANTORA_REDUCE(Sasum, kS, 4)
PHANTORA_REDUCE(Dasum, kD, 8)
PHANTORA_REDUCE(Scasum, kC, 4)
PHANTORA_REDUCE(Dzasum, kZ, 8)
PHANTORA_REDUCE(Isamax, kS, 4)
PHANTORA_REDUCE(Idamax, kD, 4)
PHANTORA_REDUCE(Icamax, kC, 4)
PHANTORA_REDUCE(Izamax, kZ, 4)
PHANTORA_REDUCE(Isamin, kS, 4)
PHANTORA_REDUCE(Idamin, kD, 4)
PHANTORA_REDUCE(Icamin, kC, 4)
PHANTORA_REDUCE(Izamin, kZ, 4)

#define PHANTORA_MATRIX_VECTOR(L)                                                                                      \
  API cublas##L##gemv_v2(void* h, int t, int m, int n, const void*, const void*, int, const void*, int, const void*,   \
                         void* y, int incy) {                                                                          \
    const int rows = t == 0 ? m : n;                                                                                   \
    return level(NAME(#L "gemv"), h, k##L, rows, 1, t == 0 ? n : m, vector(y, rows, incy));                            \
  }                                                                                                                    \
  API cublas##L##trmv_v2(void* h, int, int, int, int n, const void*, int, void* x, int incx) {                         \
    return level(NAME(#L "trmv"), h, k##L, n, 1, half(n), vector(x, n, incx));                                         \
  }                                                                                                                    \
  API cublas##L##trsv_v2(void* h, int, int, int, int n, const void*, int, void* x, int incx) {                         \
    return level(NAME(#L "trsv"), h, k##L, n, 1, half(n), vector(x, n, incx));                                         \
  }                                                                                                                    \
  API cublas##L##syrk_v2(void* h, int, int, int n, int k, const void*, const void*, int, const void*, void* c,         \
                         int ldc) {                                                                                    \
    return level(NAME(#L "syrk"), h, k##L, n, half(n), k, {c, n, n, ldc});                                             \
  }                                                                                                                    \
  API cublas##L##syr2k_v2(void* h, int, int, int n, int k, const void*, const void*, int, const void*, int,            \
                          const void*, void* c, int ldc) {                                                             \
    return level(NAME(#L "syr2k"), h, k##L, n, half(n), 2LL * k, {c, n, n, ldc});                                      \
  }                                                                                                                    \
  API cublas##L##symm_v2(void* h, int side, int, int m, int n, const void*, const void*, int, const void*, int,        \
                         const void*, void* c, int ldc) {                                                              \
    return level(NAME(#L "symm"), h, k##L, m, n, side == 0 ? m : n, {c, m, n, ldc});                                   \
  }                                                                                                                    \
  API cublas##L##trmm_v2(void* h, int side, int, int, int, int m, int n, const void*, const void*, int, const void*,   \
                         int, void* c, int ldc) {                                                                      \
    return level(NAME(#L "trmm"), h, k##L, m, n, half(side == 0 ? m : n), {c, m, n, ldc});                             \
  }                                                                                                                    \
  API cublas##L##trsm_v2(void* h, int side, int, int, int, int m, int n, const void*, const void*, int, void* b,       \
                         int ldb) {                                                                                    \
    return level(NAME(#L "trsm"), h, k##L, m, n, half(side == 0 ? m : n), {b, m, n, ldb});                             \
  }                                                                                                                    \
  API cublas##L##symv_v2(void* h, int, int n, const void*, const void*, int, const void*, int, const void*, void* y,   \
                         int incy) {                                                                                   \
    return level(NAME(#L "symv"), h, k##L, n, 1, n, vector(y, n, incy));                                               \
  }                                                                                                                    \
  API cublas##L##syr_v2(void* h, int, int n, const void*, const void*, int, void* a, int lda) {                        \
    return level(NAME(#L "syr"), h, k##L, n, half(n), 1, {a, n, n, lda});                                              \
  }                                                                                                                    \
  API cublas##L##syr2_v2(void* h, int, int n, const void*, const void*, int, const void*, int, void* a, int lda) {     \
    return level(NAME(#L "syr2"), h, k##L, n, half(n), 2, {a, n, n, lda});                                             \
  }                                                                                                                    \
  API cublas##L##trsmBatched(void* h, int side, int, int, int, int m, int n, const void*, const void* const*, int,     \
                             void* const*, int, int batch) {                                                           \
    return issue(NAME(#L "trsmBatched"), h, k##L, m, n, half(side == 0 ? m : n), batch) == nullptr                     \
               ? abi::kCublasNotInitialized                                                                            \
               : abi::kCublasSuccess;                                                                                  \
  }                                                                                                                    \
  API cublas##L##getrfBatched(void* h, int n, void* const*, int, int*, int* info, int batch) {                         \
    if (issue(NAME(#L "getrfBatched"), h, k##L, n, n, (n + 2) / 3, batch) == nullptr)                                  \
      return abi::kCublasNotInitialized;                                                                               \
    libs::mark_unknown(info, static_cast<std::size_t>(batch) * sizeof(int)); /* reads 0: no singular matrix */         \
    return abi::kCublasSuccess;                                                                                        \
  }                                                                                                                    \
  API cublas##L##getrsBatched(void* h, int, int n, int rhs, const void* const*, int, const int*, void* const*, int,    \
                              int* info, int batch) {                                                                  \
    if (issue(NAME(#L "getrsBatched"), h, k##L, n, rhs, n, batch) == nullptr) return abi::kCublasNotInitialized;       \
    if (info != nullptr) *info = 0;                                                                                    \
    return abi::kCublasSuccess;                                                                                        \
  }                                                                                                                    \
  API cublas##L##geqrfBatched(void* h, int m, int n, void* const*, int, void* const*, int* info, int batch) {          \
    if (issue(NAME(#L "geqrfBatched"), h, k##L, m, n, n - n / 3, batch) == nullptr) return abi::kCublasNotInitialized; \
    if (info != nullptr) *info = 0;                                                                                    \
    return abi::kCublasSuccess;                                                                                        \
  }                                                                                                                    \
  API cublas##L##gelsBatched(void* h, int, int m, int n, int rhs, void* const*, int, void* const*, int, int* info,     \
                             int* device_info, int batch) {                                                            \
    if (issue(NAME(#L "gelsBatched"), h, k##L, m, n, n - n / 3 + rhs, batch) == nullptr)                               \
      return abi::kCublasNotInitialized;                                                                               \
    if (info != nullptr) *info = 0;                                                                                    \
    if (device_info != nullptr) libs::mark_unknown(device_info, static_cast<std::size_t>(batch) * sizeof(int));        \
    return abi::kCublasSuccess;                                                                                        \
  }

PHANTORA_MATRIX_VECTOR(S)
PHANTORA_MATRIX_VECTOR(D)
PHANTORA_MATRIX_VECTOR(C)
PHANTORA_MATRIX_VECTOR(Z)

#define PHANTORA_GER(call, type)                                                                                    \
  API cublas##call##_v2(void* h, int m, int n, const void*, const void*, int, const void*, int, void* a, int lda) { \
    return level(NAME(#call), h, type, m, n, 1, {a, m, n, lda});                                                    \
  }
PHANTORA_GER(Sger, kS)
PHANTORA_GER(Dger, kD)
PHANTORA_GER(Cgeru, kC)
PHANTORA_GER(Cgerc, kC)
PHANTORA_GER(Zgeru, kZ)
PHANTORA_GER(Zgerc, kZ)

#define PHANTORA_HERMITIAN(L)                                                                                        \
  API cublas##L##hemv_v2(void* h, int, int n, const void*, const void*, int, const void*, int, const void*, void* y, \
                         int incy) {                                                                                 \
    return level(NAME(#L "hemv"), h, k##L, n, 1, n, vector(y, n, incy));                                             \
  }                                                                                                                  \
  API cublas##L##her_v2(void* h, int, int n, const void*, const void*, int, void* a, int lda) {                      \
    return level(NAME(#L "her"), h, k##L, n, half(n), 1, {a, n, n, lda});                                            \
  }                                                                                                                  \
  API cublas##L##her2_v2(void* h, int, int n, const void*, const void*, int, const void*, int, void* a, int lda) {   \
    return level(NAME(#L "her2"), h, k##L, n, half(n), 2, {a, n, n, lda});                                           \
  }                                                                                                                  \
  API cublas##L##herk_v2(void* h, int, int, int n, int k, const void*, const void*, int, const void*, void* c,       \
                         int ldc) {                                                                                  \
    return level(NAME(#L "herk"), h, k##L, n, half(n), k, {c, n, n, ldc});                                           \
  }                                                                                                                  \
  API cublas##L##her2k_v2(void* h, int, int, int n, int k, const void*, const void*, int, const void*, int,          \
                          const void*, void* c, int ldc) {                                                           \
    return level(NAME(#L "her2k"), h, k##L, n, half(n), 2LL * k, {c, n, n, ldc});                                    \
  }                                                                                                                  \
  API cublas##L##hemm_v2(void* h, int side, int, int m, int n, const void*, const void*, int, const void*, int,      \
                         const void*, void* c, int ldc) {                                                            \
    return level(NAME(#L "hemm"), h, k##L, m, n, side == 0 ? m : n, {c, m, n, ldc});                                 \
  }
PHANTORA_HERMITIAN(C)
PHANTORA_HERMITIAN(Z)

// ---- host to device and back: the CUDA half's copies ----------------------------------------------------------
extern "C" int cudaMemcpy2D(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int);
extern "C" int cudaMemcpy2DAsync(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int, void*);

namespace {

constexpr int kToDevice = 1, kToHost = 2;
constexpr int kBlocking = 0, kAsync = 1;

int copy(int direction, int mode, std::int64_t rows, std::int64_t columns, int element, const void* from,
         std::int64_t from_ld, void* to, std::int64_t to_ld, void* stream) {
  if (rows < 0 || columns < 0 || element <= 0 || from_ld <= 0 || to_ld <= 0) return abi::kCublasInvalidValue;
  const auto bytes = static_cast<std::size_t>(element);
  const std::size_t to_pitch = static_cast<std::size_t>(to_ld) * bytes,
                    from_pitch = static_cast<std::size_t>(from_ld) * bytes;
  const std::size_t width = static_cast<std::size_t>(rows) * bytes, height = static_cast<std::size_t>(columns);
  const int error = mode == kAsync ? cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, direction, stream)
                                   : cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, direction);
  return error == 0 ? abi::kCublasSuccess : abi::kCublasMappingError;
}

}  // namespace

// A vector with an increment is a matrix of one row.
#define PHANTORA_COPY(verb, direction)                                                                          \
  API cublas##verb##Vector(int n, int element, const void* x, int incx, void* y, int incy) {                    \
    return copy(direction, kBlocking, 1, n, element, x, incx, y, incy, nullptr);                                \
  }                                                                                                             \
  API cublas##verb##VectorAsync(int n, int element, const void* x, int incx, void* y, int incy, void* stream) { \
    return copy(direction, kAsync, 1, n, element, x, incx, y, incy, stream);                                    \
  }                                                                                                             \
  API cublas##verb##Matrix(int rows, int columns, int element, const void* a, int lda, void* b, int ldb) {      \
    return copy(direction, kBlocking, rows, columns, element, a, lda, b, ldb, nullptr);                         \
  }                                                                                                             \
  API cublas##verb##MatrixAsync(int rows, int columns, int element, const void* a, int lda, void* b, int ldb,   \
                                void* stream) {                                                                 \
    return copy(direction, kAsync, rows, columns, element, a, lda, b, ldb, stream);                             \
  }
PHANTORA_COPY(Set, kToDevice)
PHANTORA_COPY(Get, kToHost)
