// Asserts include/phantora/abi13.hpp against CUDA 13's own headers. Compiled by tools/check_abi.py only.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "phantora/abi13.hpp"

namespace abi = phantora::abi;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                                \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #theirs "::" #their_field); \
  static_assert(sizeof(ours::field) == sizeof(theirs::their_field), #theirs "::" #their_field)
#define SAME(ours, theirs, field) SAME_FIELD(ours, field, theirs, field)

static_assert(CUDART_VERSION / 1000 == 13);

SAME_SIZE(abi::DeviceProperties, cudaDeviceProp);
SAME(abi::DeviceProperties, cudaDeviceProp, uuid);
SAME(abi::DeviceProperties, cudaDeviceProp, totalGlobalMem);
SAME(abi::DeviceProperties, cudaDeviceProp, maxGridSize);
SAME(abi::DeviceProperties, cudaDeviceProp, totalConstMem);
SAME(abi::DeviceProperties, cudaDeviceProp, major);
SAME(abi::DeviceProperties, cudaDeviceProp, minor);
SAME(abi::DeviceProperties, cudaDeviceProp, texturePitchAlignment);
SAME(abi::DeviceProperties, cudaDeviceProp, multiProcessorCount);
SAME(abi::DeviceProperties, cudaDeviceProp, maxTexture3DAlt);
SAME(abi::DeviceProperties, cudaDeviceProp, maxSurfaceCubemapLayered);
SAME(abi::DeviceProperties, cudaDeviceProp, surfaceAlignment);
SAME(abi::DeviceProperties, cudaDeviceProp, pciBusID);
SAME(abi::DeviceProperties, cudaDeviceProp, memoryBusWidth);
SAME(abi::DeviceProperties, cudaDeviceProp, maxThreadsPerMultiProcessor);
SAME(abi::DeviceProperties, cudaDeviceProp, sharedMemPerMultiprocessor);
SAME(abi::DeviceProperties, cudaDeviceProp, cooperativeLaunch);
SAME(abi::DeviceProperties, cudaDeviceProp, sharedMemPerBlockOptin);
SAME(abi::DeviceProperties, cudaDeviceProp, accessPolicyMaxWindowSize);
SAME(abi::DeviceProperties, cudaDeviceProp, reservedSharedMemPerBlock);
SAME(abi::DeviceProperties, cudaDeviceProp, memoryPoolsSupported);
SAME(abi::DeviceProperties, cudaDeviceProp, clusterLaunch);
SAME(abi::DeviceProperties, cudaDeviceProp, hostNumaId);
SAME(abi::DeviceProperties, cudaDeviceProp, hostNumaMultinodeIpcSupported);

SAME_SIZE(abi::DriverDeviceProperties, CUdevprop);
SAME(abi::DriverDeviceProperties, CUdevprop, maxGridSize);
SAME(abi::DriverDeviceProperties, CUdevprop, SIMDWidth);
SAME(abi::DriverDeviceProperties, CUdevprop, textureAlign);

SAME_SIZE(abi::FunctionAttributes, cudaFuncAttributes);
SAME(abi::FunctionAttributes, cudaFuncAttributes, localSizeBytes);
SAME(abi::FunctionAttributes, cudaFuncAttributes, numRegs);
SAME(abi::FunctionAttributes, cudaFuncAttributes, binaryVersion);
SAME(abi::FunctionAttributes, cudaFuncAttributes, maxDynamicSharedSizeBytes);
SAME(abi::FunctionAttributes, cudaFuncAttributes, nonPortableClusterSizeAllowed);

SAME_SIZE(abi::PointerAttributes, cudaPointerAttributes);
SAME(abi::PointerAttributes, cudaPointerAttributes, type);
SAME(abi::PointerAttributes, cudaPointerAttributes, device);
SAME(abi::PointerAttributes, cudaPointerAttributes, devicePointer);
SAME(abi::PointerAttributes, cudaPointerAttributes, hostPointer);

SAME_SIZE(abi::LaunchConfig, cudaLaunchConfig_t);
SAME_FIELD(abi::LaunchConfig, grid, cudaLaunchConfig_t, gridDim);
SAME_FIELD(abi::LaunchConfig, block, cudaLaunchConfig_t, blockDim);
SAME_FIELD(abi::LaunchConfig, shared_bytes, cudaLaunchConfig_t, dynamicSmemBytes);
SAME_FIELD(abi::LaunchConfig, stream, cudaLaunchConfig_t, stream);
SAME_FIELD(abi::LaunchConfig, attribute_count, cudaLaunchConfig_t, numAttrs);

SAME_SIZE(abi::DriverLaunchConfig, CUlaunchConfig);
SAME_FIELD(abi::DriverLaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(abi::DriverLaunchConfig, stream, CUlaunchConfig, hStream);
SAME_FIELD(abi::DriverLaunchConfig, attribute_count, CUlaunchConfig, numAttrs);

SAME_SIZE(abi::Dim3, uint3);
SAME_SIZE(abi::Uuid, CUuuid);
SAME_SIZE(abi::PitchedPointer, cudaPitchedPtr);
SAME(abi::PitchedPointer, cudaPitchedPtr, pitch);
SAME_SIZE(abi::Extent, cudaExtent);
SAME_SIZE(abi::Memcpy3D, cudaMemcpy3DParms);
SAME(abi::Memcpy3D, cudaMemcpy3DParms, srcPos);
SAME(abi::Memcpy3D, cudaMemcpy3DParms, srcPtr);
SAME(abi::Memcpy3D, cudaMemcpy3DParms, dstArray);
SAME(abi::Memcpy3D, cudaMemcpy3DParms, dstPtr);
SAME(abi::Memcpy3D, cudaMemcpy3DParms, extent);
SAME(abi::Memcpy3D, cudaMemcpy3DParms, kind);

SAME_SIZE(abi::DriverMemcpy2D, CUDA_MEMCPY2D);
SAME(abi::DriverMemcpy2D, CUDA_MEMCPY2D, srcMemoryType);
SAME(abi::DriverMemcpy2D, CUDA_MEMCPY2D, srcDevice);
SAME(abi::DriverMemcpy2D, CUDA_MEMCPY2D, dstXInBytes);
SAME(abi::DriverMemcpy2D, CUDA_MEMCPY2D, dstHost);
SAME(abi::DriverMemcpy2D, CUDA_MEMCPY2D, Height);
SAME_SIZE(abi::DriverMemcpy3D, CUDA_MEMCPY3D);
SAME(abi::DriverMemcpy3D, CUDA_MEMCPY3D, srcDevice);
SAME(abi::DriverMemcpy3D, CUDA_MEMCPY3D, srcPitch);
SAME(abi::DriverMemcpy3D, CUDA_MEMCPY3D, dstMemoryType);
SAME(abi::DriverMemcpy3D, CUDA_MEMCPY3D, dstDevice);
SAME(abi::DriverMemcpy3D, CUDA_MEMCPY3D, Depth);

SAME_SIZE(abi::MemoryLocation, CUmemLocation);
SAME_SIZE(abi::MemoryLocation, cudaMemLocation);
SAME_SIZE(abi::MemoryAccess, CUmemAccessDesc);
SAME_SIZE(abi::AllocationProperties, CUmemAllocationProp);
SAME(abi::AllocationProperties, CUmemAllocationProp, location);
SAME(abi::AllocationProperties, CUmemAllocationProp, win32HandleMetaData);
SAME_SIZE(abi::PoolProperties, CUmemPoolProps);
SAME_SIZE(abi::PoolProperties, cudaMemPoolProps);
SAME(abi::PoolProperties, cudaMemPoolProps, location);
SAME(abi::PoolProperties, cudaMemPoolProps, maxSize);
SAME(abi::PoolProperties, cudaMemPoolProps, usage);

static_assert(abi::kOutOfMemory == cudaErrorMemoryAllocation && abi::kOutOfMemory == int(CUDA_ERROR_OUT_OF_MEMORY));
static_assert(abi::kInitializationError == cudaErrorInitializationError);
static_assert(abi::kInvalidConfiguration == cudaErrorInvalidConfiguration &&
              abi::kInvalidSymbol == cudaErrorInvalidSymbol);
static_assert(abi::kInvalidMemcpyDirection == cudaErrorInvalidMemcpyDirection);
static_assert(abi::kMissingConfiguration == cudaErrorMissingConfiguration);
static_assert(abi::kInvalidDeviceFunction == cudaErrorInvalidDeviceFunction);
static_assert(abi::kNoDevice == cudaErrorNoDevice && abi::kInvalidDevice == cudaErrorInvalidDevice);
static_assert(abi::kInvalidImage == int(CUDA_ERROR_INVALID_IMAGE) &&
              abi::kInvalidContext == int(CUDA_ERROR_INVALID_CONTEXT));
static_assert(abi::kUnsupportedLimit == cudaErrorUnsupportedLimit && abi::kFileNotFound == cudaErrorFileNotFound);
static_assert(abi::kInvalidHandle == cudaErrorInvalidResourceHandle && abi::kNotReady == cudaErrorNotReady);
static_assert(abi::kNotFound == int(CUDA_ERROR_NOT_FOUND) && abi::kNotFound == cudaErrorSymbolNotFound);
static_assert(abi::kPeerAlreadyEnabled == cudaErrorPeerAccessAlreadyEnabled &&
              abi::kPeerNotEnabled == cudaErrorPeerAccessNotEnabled);
static_assert(abi::kHostAlreadyRegistered == cudaErrorHostMemoryAlreadyRegistered);
static_assert(abi::kHostNotRegistered == cudaErrorHostMemoryNotRegistered);
static_assert(abi::kCooperativeTooLarge == cudaErrorCooperativeLaunchTooLarge &&
              abi::kNotSupported == cudaErrorNotSupported);
static_assert(abi::kHostToDevice == cudaMemcpyHostToDevice && abi::kDeviceToHost == cudaMemcpyDeviceToHost);
static_assert(abi::kManaged == cudaMemoryTypeManaged && abi::kDevice == cudaMemoryTypeDevice &&
              abi::kHost == cudaMemoryTypeHost);
static_assert(abi::kEventDisableTiming == cudaEventDisableTiming && abi::kStreamNonBlocking == cudaStreamNonBlocking);

// The numbers that properties.cpp and functions.cpp switch over.
static_assert(cudaDevAttrMaxThreadsPerBlock == 1 && cudaDevAttrClockRate == 13 && cudaDevAttrMultiProcessorCount == 16);
static_assert(cudaDevAttrMemoryClockRate == 36 && cudaDevAttrComputeCapabilityMajor == 75);
static_assert(cudaDevAttrMaxSharedMemoryPerMultiprocessor == 81 && cudaDevAttrMaxSharedMemoryPerBlockOptin == 97);
static_assert(cudaDevAttrMaxBlocksPerMultiprocessor == 106 && cudaDevAttrReservedSharedMemoryPerBlock == 111);
static_assert(cudaDevAttrMemoryPoolsSupported == 115 && cudaDevAttrClusterLaunch == 120);
static_assert(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED == 102 &&
              CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED == 132);
static_assert(CU_FUNC_ATTRIBUTE_NUM_REGS == 4 && CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8);
static_assert(cudaFuncAttributeMaxDynamicSharedMemorySize == 8 && cudaFuncAttributePreferredSharedMemoryCarveout == 9);
static_assert(cudaMemPoolAttrReleaseThreshold == 4 && cudaMemPoolAttrUsedMemHigh == 8);
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1);
static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9 && CU_POINTER_ATTRIBUTE_MAPPED == 13);
static_assert(int(cudaStreamCaptureStatusNone) == 0 && int(cudaDriverEntryPointSymbolNotFound) == 1);
