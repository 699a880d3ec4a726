// What the GPU profile says, in the words of cudaDeviceProp and of the device attributes.
//
// Values that no profile carries are those of every data-centre GPU since Volta (texture limits, warp size, grid
// limits); the CUDA C++ Programming Guide lists them under "Compute Capabilities".
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cuda/state.hpp"

namespace phantora::cuda {
namespace {

// Bus numbers of a DGX H100's GPUs; a node with more gets further numbers.
constexpr int kBus[] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};

int bus_of(int node_device) {
  return node_device < static_cast<int>(std::size(kBus)) ? kBus[node_device] : 0x04 + node_device;
}

int to_int(std::uint64_t value) { return static_cast<int>(std::min<std::uint64_t>(value, 0x7fffffff)); }

}  // namespace

int pci_bus(int node_device) { return bus_of(node_device); }

void node_device_uuid(abi::Uuid& uuid, int node_device) {
  const wire::RunHeader* header = client::header();
  const std::uint32_t per_node = std::max<std::uint32_t>(1, header->gpus_per_node);
  const std::uint32_t node = static_cast<std::uint32_t>(std::max(0, client::world_rank())) / per_node;
  char text[64];
  std::snprintf(text, sizeof text, "%.15s/%u/%d", header->gpu.uuid_prefix, node, node_device);
  const std::uint64_t low = wire::name_hash(text);
  const std::uint64_t high = low * 0x9e3779b97f4a7c15ULL ^ low >> 31;
  std::memcpy(uuid.bytes, &low, 8);
  std::memcpy(uuid.bytes + 8, &high, 8);
}

void pci_bus_id(char* text, int size, int ordinal) {
  const int domain = to_int(gpu().pcie_domain);
  std::snprintf(text, static_cast<std::size_t>(size), "%04x:%02x:00.0", static_cast<unsigned>(domain),
                static_cast<unsigned>(bus_of(node_device_of(ordinal))));
}

int ordinal_by_pci(const char* text) {
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x", &bus, &device) != 2) return -1;
  }
  for (int ordinal = 0; ordinal < visible_count(); ++ordinal) {
    if (static_cast<unsigned>(bus_of(node_device_of(ordinal))) == bus && domain == gpu().pcie_domain) return ordinal;
  }
  return -1;
}

Status fill_properties(abi::DeviceProperties& p, int ordinal) {
  if (const Status status = initialise(); status != abi::kSuccess) return status;
  if (ordinal < 0 || ordinal >= visible_count()) return abi::kInvalidDevice;
  const wire::GpuProperties& g = gpu();
  const int node_device = node_device_of(ordinal);
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "%s", g.name);
  node_device_uuid(p.uuid, node_device);
  p.totalGlobalMem = g.total_bytes;
  p.sharedMemPerBlock = g.shared_per_block;
  p.regsPerBlock = to_int(g.registers_per_block);
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = to_int(g.compute_major);
  p.minor = to_int(g.compute_minor);
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.surfaceAlignment = 512;
  p.multiProcessorCount = to_int(g.sm_count);
  p.canMapHostMemory = 1;
  p.maxTexture1D = 131072;
  p.maxTexture1DMipmap = 32768;
  p.maxTexture2D[0] = 131072, p.maxTexture2D[1] = 65536;
  p.maxTexture2DMipmap[0] = p.maxTexture2DMipmap[1] = 32768;
  p.maxTexture2DLinear[0] = 131072, p.maxTexture2DLinear[1] = 65000, p.maxTexture2DLinear[2] = 2097120;
  p.maxTexture2DGather[0] = p.maxTexture2DGather[1] = 32768;
  std::fill_n(p.maxTexture3D, 3, 16384);
  p.maxTexture3DAlt[0] = p.maxTexture3DAlt[1] = 8192, p.maxTexture3DAlt[2] = 32768;
  p.maxTextureCubemap = 32768;
  p.maxTexture1DLayered[0] = 32768, p.maxTexture1DLayered[1] = 2048;
  p.maxTexture2DLayered[0] = p.maxTexture2DLayered[1] = 32768, p.maxTexture2DLayered[2] = 2048;
  p.maxTextureCubemapLayered[0] = 32768, p.maxTextureCubemapLayered[1] = 2046;
  p.maxSurface1D = 32768;
  p.maxSurface2D[0] = 131072, p.maxSurface2D[1] = 65536;
  std::fill_n(p.maxSurface3D, 3, 16384);
  p.maxSurface1DLayered[0] = 32768, p.maxSurface1DLayered[1] = 2048;
  p.maxSurface2DLayered[0] = p.maxSurface2DLayered[1] = 32768, p.maxSurface2DLayered[2] = 2048;
  p.maxSurfaceCubemap = 32768;
  p.maxSurfaceCubemapLayered[0] = 32768, p.maxSurfaceCubemapLayered[1] = 2046;
  p.concurrentKernels = 1;
  p.ECCEnabled = 1;
  p.pciBusID = bus_of(node_device);
  p.pciDomainID = to_int(g.pcie_domain);
  p.asyncEngineCount = to_int(g.copy_engines);
  p.unifiedAddressing = 1;
  p.memoryBusWidth = to_int(g.memory_bus_bits);
  p.l2CacheSize = to_int(g.l2_bytes);
  p.persistingL2CacheMaxSize = to_int(g.l2_bytes / 16 * 10);
  p.accessPolicyMaxWindowSize = 134213632;
  p.maxThreadsPerMultiProcessor = to_int(g.max_threads_per_sm);
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.sharedMemPerMultiprocessor = g.shared_per_sm;
  p.regsPerMultiprocessor = to_int(g.registers_per_sm);
  p.managedMemory = p.concurrentManagedAccess = p.computePreemptionSupported = 1;
  p.canUseHostPointerForRegisteredMem = p.cooperativeLaunch = 1;
  p.sharedMemPerBlockOptin = g.shared_per_block_optin;
  p.maxBlocksPerMultiProcessor = to_int(g.max_blocks_per_sm);
  p.reservedSharedMemPerBlock = g.reserved_shared_per_block;
  p.hostRegisterSupported = p.sparseCudaArraySupported = p.timelineSemaphoreInteropSupported = 1;
  p.memoryPoolsSupported = 1;
  p.deferredMappingCudaArraySupported = 1;
  p.clusterLaunch = g.compute_major >= 9 ? 1 : 0;
  p.deviceNumaId = p.hostNumaId = -1;
  return abi::kSuccess;
}

Status device_attribute(int& value, int attribute, int ordinal) {
  abi::DeviceProperties p;
  if (const Status status = fill_properties(p, ordinal); status != abi::kSuccess) return status;
  const wire::GpuProperties& g = gpu();
  switch (attribute) {
    case 1:
      value = p.maxThreadsPerBlock;
      break;
    case 2:
    case 3:
    case 4:
      value = p.maxThreadsDim[attribute - 2];
      break;
    case 5:
    case 6:
    case 7:
      value = p.maxGridSize[attribute - 5];
      break;
    case 8:
      value = to_int(p.sharedMemPerBlock);
      break;
    case 9:
      value = to_int(p.totalConstMem);
      break;
    case 10:
      value = p.warpSize;
      break;
    case 11:
      value = to_int(p.memPitch);
      break;
    case 12:
      value = p.regsPerBlock;
      break;
    case 13:
      value = to_int(g.clock_khz);
      break;
    case 14:
      value = to_int(p.textureAlignment);
      break;
    case 15:
      value = 1;
      break;  // copy and kernel overlap
    case 16:
      value = p.multiProcessorCount;
      break;
    case 17:
      value = 0;
      break;  // run time limit on kernels
    case 18:
      value = p.integrated;
      break;
    case 19:
      value = p.canMapHostMemory;
      break;
    case 20:
      value = 0;
      break;  // compute mode: default
    case 21:
      value = p.maxTexture1D;
      break;
    case 22:
    case 23:
      value = p.maxTexture2D[attribute - 22];
      break;
    case 24:
    case 25:
    case 26:
      value = p.maxTexture3D[attribute - 24];
      break;
    case 27:
    case 28:
    case 29:
      value = p.maxTexture2DLayered[attribute - 27];
      break;
    case 30:
      value = to_int(p.surfaceAlignment);
      break;
    case 31:
      value = p.concurrentKernels;
      break;
    case 32:
      value = p.ECCEnabled;
      break;
    case 33:
      value = p.pciBusID;
      break;
    case 34:
      value = p.pciDeviceID;
      break;
    case 35:
      value = p.tccDriver;
      break;
    case 36:
      value = to_int(g.memory_clock_khz);
      break;
    case 37:
      value = p.memoryBusWidth;
      break;
    case 38:
      value = p.l2CacheSize;
      break;
    case 39:
      value = p.maxThreadsPerMultiProcessor;
      break;
    case 40:
      value = p.asyncEngineCount;
      break;
    case 41:
      value = p.unifiedAddressing;
      break;
    case 42:
    case 43:
      value = p.maxTexture1DLayered[attribute - 42];
      break;
    case 44:
      value = 1;
      break;
    case 45:
    case 46:
      value = p.maxTexture2DGather[attribute - 45];
      break;
    case 47:
    case 48:
    case 49:
      value = p.maxTexture3DAlt[attribute - 47];
      break;
    case 50:
      value = p.pciDomainID;
      break;
    case 51:
      value = to_int(p.texturePitchAlignment);
      break;
    case 52:
      value = p.maxTextureCubemap;
      break;
    case 53:
    case 54:
      value = p.maxTextureCubemapLayered[attribute - 53];
      break;
    case 55:
      value = p.maxSurface1D;
      break;
    case 56:
    case 57:
      value = p.maxSurface2D[attribute - 56];
      break;
    case 58:
    case 59:
    case 60:
      value = p.maxSurface3D[attribute - 58];
      break;
    case 61:
    case 62:
      value = p.maxSurface1DLayered[attribute - 61];
      break;
    case 63:
    case 64:
    case 65:
      value = p.maxSurface2DLayered[attribute - 63];
      break;
    case 66:
      value = p.maxSurfaceCubemap;
      break;
    case 67:
    case 68:
      value = p.maxSurfaceCubemapLayered[attribute - 67];
      break;
    case 69:
      value = 268435456;
      break;  // 1D linear texture
    case 70:
    case 71:
    case 72:
      value = p.maxTexture2DLinear[attribute - 70];
      break;
    case 73:
    case 74:
      value = p.maxTexture2DMipmap[attribute - 73];
      break;
    case 75:
      value = p.major;
      break;
    case 76:
      value = p.minor;
      break;
    case 77:
      value = p.maxTexture1DMipmap;
      break;
    case 78:
    case 79:
    case 80:
      value = 1;
      break;  // stream priorities, L1 caches
    case 81:
      value = to_int(p.sharedMemPerMultiprocessor);
      break;
    case 82:
      value = p.regsPerMultiprocessor;
      break;
    case 83:
      value = p.managedMemory;
      break;
    case 84:
    case 85:
    case 86:
      value = 0;
      break;  // multi-GPU board, its id, native host atomics
    case 87:
      value = g.compute_major >= 10 ? 64 : 2;
      break;  // single to double ratio
    case 88:
      value = p.pageableMemoryAccess;
      break;
    case 89:
    case 90:
    case 91:
      value = 1;
      break;
    case 92:
    case 93:
    case 94:
      value = 0;
      break;  // old stream memory operations
    case 95:
      value = p.cooperativeLaunch;
      break;
    case 96:
      value = 0;
      break;
    case 97:
      value = to_int(p.sharedMemPerBlockOptin);
      break;
    case 98:
      value = 0;
      break;
    case 99:
      value = p.hostRegisterSupported;
      break;
    case 100:
    case 101:
      value = 0;
      break;
    case 102:
      value = 1;
      break;  // virtual memory management
    case 103:
    case 104:
    case 105:
      value = 0;
      break;  // exported handles: refused here
    case 106:
      value = p.maxBlocksPerMultiProcessor;
      break;
    case 107:
      value = 0;
      break;
    case 108:
      value = p.persistingL2CacheMaxSize;
      break;
    case 109:
      value = p.accessPolicyMaxWindowSize;
      break;
    case 110:
      value = 0;
      break;
    case 111:
      value = to_int(p.reservedSharedMemPerBlock);
      break;
    case 112:
      value = p.sparseCudaArraySupported;
      break;
    case 113:
      value = 0;
      break;
    case 114:
      value = p.timelineSemaphoreInteropSupported;
      break;
    case 115:
      value = p.memoryPoolsSupported;
      break;
    case 116:
    case 117:
    case 118:
    case 119:
      value = 0;
      break;  // GPUDirect RDMA, pool export
    case 120:
      value = p.clusterLaunch;
      break;
    case 121:
      value = 1;
      break;
    case 122:
    case 123:
    case 124:
    case 125:
    case 126:
      value = attribute == 126 ? 4 : 0;
      break;
    case 127:
      value = g.compute_major >= 9 ? 1 : 0;
      break;  // tensor maps
    case 128:
    case 129:
    case 130:
      value = 0;
      break;  // fabric handles, function pointers, NUMA
    case 131:
    case 134:
      value = -1;
      break;
    case 132:
    case 133:
      value = 0;
      break;  // multicast, MPS
    default:
      // 135 and later: features that the shim does not have. Anything beyond CUDA 13.5 is unknown.
      if (attribute < 135 || attribute > 170) return abi::kInvalidValue;
      value = 0;
  }
  return abi::kSuccess;
}

}  // namespace phantora::cuda
