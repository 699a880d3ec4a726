// The parts of CUDA 13's runtime and driver ABI that the shim reads or writes, written out so that the build needs no CUDA
// header. abi/check_cuda13.cpp asserts sizes, offsets and values against the real ones (`make check-abi`).
#pragma once

#include <cstddef>
#include <cstdint>

namespace phantora::abi {

// cudaError and CUresult share their numbers; the few that the shim returns.
enum Status : int {
  kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInitializationError = 3, kDeinitialized = 4,
  kInvalidConfiguration = 9, kInvalidSymbol = 13, kInvalidDevicePointer = 17, kInvalidMemcpyDirection = 21,
  kMissingConfiguration = 52, kInvalidDeviceFunction = 98, kNoDevice = 100, kInvalidDevice = 101, kInvalidImage = 200,
  kInvalidContext = 201, kUnsupportedLimit = 215, kFileNotFound = 301, kInvalidHandle = 400, kIllegalState = 401,
  kNotFound = 500, kNotReady = 600, kLaunchOutOfResources = 701, kPeerAlreadyEnabled = 704, kPeerNotEnabled = 705,
  kPrimaryContextActive = 708, kHostAlreadyRegistered = 712, kHostNotRegistered = 713, kCooperativeTooLarge = 720,
  kNotSupported = 801, kStreamCaptureUnsupported = 900, kCaptureUnmatched = 903, kUnknown = 999,
};

enum MemcpyKind : int { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kDefault = 4 };
enum MemoryType : int { kUnregistered = 0, kHost = 1, kDevice = 2, kManaged = 3 };

struct Dim3 { unsigned x, y, z; };

struct Uuid { char bytes[16]; };

struct DeviceProperties {
  char name[256];
  Uuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  std::size_t totalConstMem;
  int major, minor;
  std::size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount, integrated, canMapHostMemory;
  int maxTexture1D, maxTexture1DMipmap, maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3],
      maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2],
      maxTexture2DLayered[3], maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3],
      maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  std::size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing,
      memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported,
      globalL1CacheSupported, localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported,
      pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem,
      cooperativeLaunch;
  std::size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor,
      accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported,
      memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers, deviceNumaConfig,
      deviceNumaId, mpsEnabled, hostNumaId;
  unsigned gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported, reserved[56];
};
static_assert(sizeof(DeviceProperties) == 1008);

struct DriverDeviceProperties {
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory, SIMDWidth, memPitch,
      regsPerBlock, clockRate, textureAlign;
};

struct FunctionAttributes {
  std::size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes,
      preferredShmemCarveout, clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth,
      clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed, reserved[16];
};

struct PointerAttributes {
  int type, device;
  void* devicePointer;
  void* hostPointer;
  long reserved[8];
};

struct LaunchConfig {  // cudaLaunchConfig_t
  Dim3 grid, block;
  std::size_t shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

struct DriverLaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

struct PitchedPointer { void* ptr; std::size_t pitch, xsize, ysize; };
struct Extent { std::size_t width, height, depth; };
struct Position { std::size_t x, y, z; };

struct Memcpy3D {  // cudaMemcpy3DParms
  void* srcArray;
  Position srcPos;
  PitchedPointer srcPtr;
  void* dstArray;
  Position dstPos;
  PitchedPointer dstPtr;
  Extent extent;
  int kind;
};

struct DriverMemcpy2D {  // CUDA_MEMCPY2D
  std::size_t srcXInBytes, srcY;
  unsigned srcMemoryType;
  const void* srcHost;
  std::uint64_t srcDevice;
  void* srcArray;
  std::size_t srcPitch, dstXInBytes, dstY;
  unsigned dstMemoryType;
  void* dstHost;
  std::uint64_t dstDevice;
  void* dstArray;
  std::size_t dstPitch, WidthInBytes, Height;
};

struct DriverMemcpy3D {  // CUDA_MEMCPY3D
  std::size_t srcXInBytes, srcY, srcZ, srcLOD;
  unsigned srcMemoryType;
  const void* srcHost;
  std::uint64_t srcDevice;
  void* srcArray;
  void* reserved0;
  std::size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
  unsigned dstMemoryType;
  void* dstHost;
  std::uint64_t dstDevice;
  void* dstArray;
  void* reserved1;
  std::size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
};

struct MemoryLocation { int type, id; };
struct MemoryAccess { MemoryLocation location; int flags; };

struct AllocationProperties {  // CUmemAllocationProp
  int type, requestedHandleTypes;
  MemoryLocation location;
  void* win32HandleMetaData;
  unsigned char compressionType, gpuDirectRDMACapable;
  unsigned short usage;
  unsigned char reserved[4];
};

struct PoolProperties {  // cudaMemPoolProps, CUmemPoolProps
  int allocType, handleTypes;
  MemoryLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};

inline constexpr unsigned kRuntimeVersion = 13000;
inline constexpr int kLegacyStream = 1, kPerThreadStream = 2;
inline constexpr int kEventDisableTiming = 2;
inline constexpr int kStreamNonBlocking = 1;

}  // namespace phantora::abi
