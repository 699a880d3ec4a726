// The parts of NVIDIA's library ABIs (cuBLAS, cuBLASLt, NCCL, NVML, cuDNN, CUPTI) that the shim reads or writes.
// Written out here so that the build needs no CUDA header; shim/abi/check_libs.cpp asserts them against the real ones.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef PHANTORA_EXPORT
#define PHANTORA_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace phantora::abi {

// ---- library_types.h ---------------------------------------------------------------------------------------
enum CudaDataType : int {
  kR32F = 0,
  kR64F = 1,
  kR16F = 2,
  kR8I = 3,
  kC32F = 4,
  kC64F = 5,
  kR8U = 8,
  kR32I = 10,
  kR32U = 12,
  kR16BF = 14,
  kR4I = 16,
  kR16I = 20,
  kR64I = 24,
  kR64U = 26,
  kR8FE4M3 = 28,
  kR8FE5M2 = 29,
  kR8FUE8M0 = 30,
  kR4FE2M1 = 33,
};

// ---- cublas_api.h ------------------------------------------------------------------------------------------
enum CublasStatus : int {
  kCublasSuccess = 0,
  kCublasNotInitialized = 1,
  kCublasAllocFailed = 3,
  kCublasInvalidValue = 7,
  kCublasArchMismatch = 8,
  kCublasMappingError = 11,
  kCublasExecutionFailed = 13,
  kCublasInternalError = 14,
  kCublasNotSupported = 15,
};
enum CublasMath : int { kMathDefault = 0, kMathTensorOp = 1, kMathPedantic = 2, kMathTf32 = 3 };
inline constexpr int kPointerModeHost = 0;
inline constexpr int kCublasVersion = 130101;  // what CUDA 13.0's cuBLAS 13.1.1 reports
enum CublasCompute : int {
  kCompute16F = 64,
  kCompute16FPedantic = 65,
  kCompute32F = 68,
  kCompute32FPedantic = 69,
  kCompute64F = 70,
  kCompute64FPedantic = 71,
  kCompute32I = 72,
  kCompute32IPedantic = 73,
  kCompute32FFast16F = 74,
  kCompute32FFast16BF = 75,
  kCompute32FFastTf32 = 77,
  kCompute32FEmulated16BFx9 = 78,
};

// ---- cublasLt.h --------------------------------------------------------------------------------------------
struct LtMatrixLayout {
  std::uint64_t data[8];
};
struct LtMatmulAlgo {
  std::uint64_t data[8];
};
struct LtMatmulDesc {
  std::uint64_t data[32];
};
struct LtHeuristicResult {
  LtMatmulAlgo algo;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

// ---- nccl.h ------------------------------------------------------------------------------------------------
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError,
  kNcclSystemError,
  kNcclInternalError,
  kNcclInvalidArgument,
  kNcclInvalidUsage,
  kNcclRemoteError,
  kNcclInProgress,
  kNcclTimeout,
};
enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8,
  kNcclInt32,
  kNcclUint32,
  kNcclInt64,
  kNcclUint64,
  kNcclFloat16,
  kNcclFloat32,
  kNcclFloat64,
  kNcclBfloat16,
  kNcclFloat8E4M3,
  kNcclFloat8E5M2,
  kNcclTypeCount,
};
enum NcclReduction : int { kNcclSum = 0, kNcclProd, kNcclMax, kNcclMin, kNcclAvg, kNcclOpCount };
inline constexpr int kNcclVersion = 23007;  // 2.30.7, which torch 2.14.1 is built with
struct NcclUniqueId {
  char internal[128];
};
struct NcclConfig {  // the fields up to commName; later versions only append
  std::size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* comm_name;
};
inline constexpr unsigned kNcclMagic = 0xcafebeefU;

// ---- nvml.h ------------------------------------------------------------------------------------------------
enum NvmlReturn : int {
  kNvmlSuccess = 0,
  kNvmlUninitialized = 1,
  kNvmlInvalidArgument = 2,
  kNvmlNotSupported = 3,
  kNvmlNotFound = 6,
  kNvmlInsufficientSize = 7,
  kNvmlFunctionNotFound = 13,
  kNvmlUnknown = 999,
};
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct NvmlUtilization {
  unsigned gpu, memory;
};
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct NvmlProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct NvmlProcessInfoV1 {
  unsigned pid;
  unsigned long long used_bytes;
};
struct NvmlBar1Memory {
  unsigned long long total, free, used;
};
struct NvmlFabricInfoV {  // version 2
  unsigned version;
  unsigned char cluster_uuid[16];
  int status;
  unsigned clique_id;
  unsigned char state;
  unsigned health_mask;
};

// As nvidia-ml-py's structures, which tests/shim/test_nvml.py compares with these numbers.
static_assert(sizeof(NvmlPciInfo) == 68 && sizeof(NvmlMemory) == 24 && sizeof(NvmlMemoryV2) == 40);
static_assert(sizeof(NvmlProcessInfo) == 24 && sizeof(NvmlProcessInfoV1) == 16 && sizeof(NvmlFabricInfoV) == 36);

// ---- cudnn.h, cupti_result.h ---------------------------------------------------------------------------------
inline constexpr int kCudnnSuccess = 0, kCudnnBadParam = 2000, kCudnnNotSupported = 3000;
inline constexpr int kCuptiSuccess = 0, kCuptiErrorNotInitialized = 15, kCuptiErrorMaxLimitReached = 12,
                     kCuptiErrorNotSupported = 27, kCuptiErrorUnknown = 999;

}  // namespace phantora::abi
