// Compiled by `make check-abi` only: the declarations of abi_libs.hpp against NVIDIA's headers (wheels nvidia-cublas,
// nvidia-nccl-cu13, nvidia-cudnn-cu13, nvidia-cuda-cupti). NVML has no header wheel: its structures are checked by
// tests/shim/test_nvml.py against nvidia-ml-py.

// The half-precision headers need CCCL's, and only their types' names occur in what is checked here.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#define __CUDA_FP8_H__
struct __half;
struct __nv_bfloat16;

#if __has_include(<cublasLt.h>)  // a wheel of 400 MB: checked where it is there
#define PHANTORA_CHECK_CUBLAS
#include <cublasLt.h>
#include <cublas_v2.h>
#endif
#include <cudnn.h>
#if __has_include(<cupti_result.h>)
#define PHANTORA_CHECK_CUPTI
#include <cupti_result.h>
#endif
#include <library_types.h>
#include <nccl.h>

#include <cstddef>

#include "phantora/abi_libs.hpp"

namespace abi = phantora::abi;

#define SAME(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs)
#define SAME_SIZE(ours, theirs) \
  static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field) \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #theirs "::" #their_field)

SAME(abi::kR32F, CUDA_R_32F);
SAME(abi::kR64F, CUDA_R_64F);
SAME(abi::kR16F, CUDA_R_16F);
SAME(abi::kR16BF, CUDA_R_16BF);
SAME(abi::kR8I, CUDA_R_8I);
SAME(abi::kR8U, CUDA_R_8U);
SAME(abi::kR16I, CUDA_R_16I);
SAME(abi::kR32I, CUDA_R_32I);
SAME(abi::kR32U, CUDA_R_32U);
SAME(abi::kR64I, CUDA_R_64I);
SAME(abi::kR64U, CUDA_R_64U);
SAME(abi::kC32F, CUDA_C_32F);
SAME(abi::kC64F, CUDA_C_64F);
SAME(abi::kR8FE4M3, CUDA_R_8F_E4M3);
SAME(abi::kR8FE5M2, CUDA_R_8F_E5M2);
SAME(abi::kR8FUE8M0, CUDA_R_8F_UE8M0);
SAME(abi::kR4FE2M1, CUDA_R_4F_E2M1);

#ifdef PHANTORA_CHECK_CUBLAS
SAME(abi::kCublasNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(abi::kCublasAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
SAME(abi::kCublasInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
SAME(abi::kCublasNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(abi::kMathTf32, CUBLAS_TF32_TENSOR_OP_MATH);
SAME(abi::kPointerModeHost, CUBLAS_POINTER_MODE_HOST);
SAME(abi::kCompute16F, CUBLAS_COMPUTE_16F);
SAME(abi::kCompute32F, CUBLAS_COMPUTE_32F);
SAME(abi::kCompute32FFast16F, CUBLAS_COMPUTE_32F_FAST_16F);
SAME(abi::kCompute32FFast16BF, CUBLAS_COMPUTE_32F_FAST_16BF);
SAME(abi::kCompute32FFastTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(abi::kCompute64F, CUBLAS_COMPUTE_64F);
SAME(abi::kCompute32I, CUBLAS_COMPUTE_32I);
SAME_SIZE(abi::LtMatrixLayout, cublasLtMatrixLayoutOpaque_t);
SAME_SIZE(abi::LtMatmulAlgo, cublasLtMatmulAlgo_t);
SAME_SIZE(abi::LtMatmulDesc, cublasLtMatmulDescOpaque_t);
SAME_SIZE(abi::LtHeuristicResult, cublasLtMatmulHeuristicResult_t);
SAME_FIELD(abi::LtHeuristicResult, workspace_bytes, cublasLtMatmulHeuristicResult_t, workspaceSize);
SAME_FIELD(abi::LtHeuristicResult, state, cublasLtMatmulHeuristicResult_t, state);
SAME_FIELD(abi::LtHeuristicResult, waves, cublasLtMatmulHeuristicResult_t, wavesCount);
#endif

SAME(abi::kNcclInvalidArgument, ncclInvalidArgument);
SAME(abi::kNcclInvalidUsage, ncclInvalidUsage);
SAME(abi::kNcclRemoteError, ncclRemoteError);
SAME(abi::kNcclInProgress, ncclInProgress);
SAME(abi::kNcclFloat16, ncclFloat16);
SAME(abi::kNcclBfloat16, ncclBfloat16);
SAME(abi::kNcclFloat8E4M3, ncclFloat8e4m3);
SAME(abi::kNcclFloat8E5M2, ncclFloat8e5m2);
SAME(abi::kNcclTypeCount, ncclNumTypes);
SAME(abi::kNcclAvg, ncclAvg);
SAME(abi::kNcclOpCount, ncclNumOps);
SAME(abi::kNcclMagic, NCCL_API_MAGIC);
SAME_SIZE(abi::NcclUniqueId, ncclUniqueId);
SAME_FIELD(abi::NcclConfig, blocking, ncclConfig_t, blocking);
SAME_FIELD(abi::NcclConfig, net_name, ncclConfig_t, netName);
SAME_FIELD(abi::NcclConfig, split_share, ncclConfig_t, splitShare);
SAME_FIELD(abi::NcclConfig, comm_name, ncclConfig_t, commName);

SAME(abi::kCudnnSuccess, CUDNN_STATUS_SUCCESS);
SAME(abi::kCudnnBadParam, CUDNN_STATUS_BAD_PARAM);
SAME(abi::kCudnnNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
#ifdef PHANTORA_CHECK_CUPTI
SAME(abi::kCuptiErrorNotSupported, CUPTI_ERROR_NOT_SUPPORTED);
#endif
