// CUDA runtime: registration of kernels by nvcc's host code, launches, function attributes, occupancy, libraries.
#include <cstring>

#include "cuda/errors.hpp"
#include "cuda/functions.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

struct Configuration {
  abi::Dim3 grid, block;
  std::size_t shared_bytes;
  void* stream;
};
thread_local Configuration configurations[8];
thread_local int configuration_depth = 0;

Function* as_function(const void* handle) {
  if (Function* function = find_function(handle); function != nullptr) return function;
  return is_function(handle) ? static_cast<Function*>(const_cast<void*>(handle)) : nullptr;
}

LaunchShape shape(abi::Dim3 grid, abi::Dim3 block, std::size_t shared_bytes) {
  return {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
}

int attributes_of(abi::FunctionAttributes& a, const Function& function) {
  std::memset(&a, 0, sizeof a);
  const auto get = [&function](int attribute) {
    int value = 0;
    function_attribute(value, attribute, function);
    return value;
  };
  a.maxThreadsPerBlock = get(0);
  a.sharedSizeBytes = static_cast<std::size_t>(get(1));
  a.localSizeBytes = static_cast<std::size_t>(get(3));
  a.numRegs = get(4);
  a.ptxVersion = get(5);
  a.binaryVersion = get(6);
  a.maxDynamicSharedSizeBytes = get(8);
  a.preferredShmemCarveout = get(9);
  return abi::kSuccess;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) { return register_binary(); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** binary) {
  if (binary != nullptr) unregister_binary(binary);
}
void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  register_function(binary, host, name);
}
void __cudaRegisterVar(void**, char* host, char*, const char* name, int, std::size_t bytes, int, int) {
  register_variable(host, name, bytes);
}
void __cudaRegisterManagedVar(void**, void** host, char*, const char* name, int, std::size_t bytes, int, int) {
  register_variable(host, name, bytes);
}
void __cudaRegisterHostVar(void**, const char* name, char* host, std::size_t bytes) {
  register_variable(host, name, bytes);
}
char __cudaInitModule(void**) { return 0; }

unsigned __cudaPushCallConfiguration(abi::Dim3 grid, abi::Dim3 block, std::size_t shared_bytes, void* stream) {
  if (configuration_depth == static_cast<int>(std::size(configurations))) return abi::kInvalidValue;
  configurations[configuration_depth++] = {grid, block, shared_bytes, stream};
  return 0;
}

int __cudaPopCallConfiguration(abi::Dim3* grid, abi::Dim3* block, std::size_t* shared_bytes, void* stream) {
  if (configuration_depth == 0) return keep(abi::kMissingConfiguration);
  const Configuration& top = configurations[--configuration_depth];
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return abi::kSuccess;
}

int __cudaGetKernel(void** kernel, const void* host) {
  Function* function = find_function(host);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  *kernel = function;
  return abi::kSuccess;
}
int cudaGetKernel(void** kernel, const void* host) { return __cudaGetKernel(kernel, host); }
int cudaGetFuncBySymbol(void** function, const void* host) { return __cudaGetKernel(function, host); }

// The handle comes from __cudaGetKernel: it is a Function.
int __cudaLaunchKernel(void* kernel, abi::Dim3 grid, abi::Dim3 block, void** arguments, std::size_t shared_bytes,
                       void* stream) {
  if (kernel == nullptr) return keep(abi::kInvalidDeviceFunction);
  return keep(launch(static_cast<Function*>(kernel), shape(grid, block, shared_bytes), arguments, stream));
}

int cudaLaunchKernel(const void* host, abi::Dim3 grid, abi::Dim3 block, void** arguments, std::size_t shared_bytes,
                     void* stream) {
  Function* function = as_function(host);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  return keep(launch(function, shape(grid, block, shared_bytes), arguments, stream));
}

int cudaLaunchKernelExC(const abi::LaunchConfig* config, const void* host, void** arguments) {
  Function* function = config == nullptr ? nullptr : as_function(host);
  if (function == nullptr) return keep(config == nullptr ? abi::kInvalidValue : abi::kInvalidDeviceFunction);
  return keep(launch(function, shape(config->grid, config->block, config->shared_bytes), arguments, config->stream));
}

int cudaLaunchCooperativeKernel(const void* host, abi::Dim3 grid, abi::Dim3 block, void** arguments,
                                std::size_t shared_bytes, void* stream) {
  Function* function = as_function(host);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  const std::uint64_t blocks = static_cast<std::uint64_t>(grid.x) * grid.y * grid.z;
  const int each = active_blocks(*function, static_cast<int>(block.x * block.y * block.z), shared_bytes);
  if (blocks > static_cast<std::uint64_t>(each) * gpu().sm_count) return keep(abi::kCooperativeTooLarge);
  return keep(launch(function, shape(grid, block, shared_bytes), arguments, stream));
}

int cudaFuncGetAttributes(abi::FunctionAttributes* attributes, const void* host) {
  const Function* function = as_function(host);
  if (attributes == nullptr) return keep(abi::kInvalidValue);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  return attributes_of(*attributes, *function);
}

int cudaFuncSetAttribute(const void* host, int attribute, int value) {
  Function* function = as_function(host);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  return keep(set_function_attribute(*function, attribute, value));
}
int cudaKernelSetAttributeForDevice(void* kernel, int attribute, int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}
int cudaFuncSetCacheConfig(const void* host, int) {
  return keep(as_function(host) == nullptr ? abi::kInvalidDeviceFunction : abi::kSuccess);
}
int cudaFuncGetName(const char** name, const void* host) {
  const Function* function = as_function(host);
  if (name == nullptr || function == nullptr)
    return keep(name == nullptr ? abi::kInvalidValue : abi::kInvalidDeviceFunction);
  *name = function->name;
  return abi::kSuccess;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int block_size,
                                                           std::size_t shared, unsigned) {
  const Function* function = as_function(host);
  if (blocks == nullptr) return keep(abi::kInvalidValue);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  *blocks = active_blocks(*function, block_size, shared);
  return abi::kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int block_size, std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, block_size, shared, 0);
}
int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void* host, int blocks, int block_size) {
  const Function* function = as_function(host);
  if (bytes == nullptr) return keep(abi::kInvalidValue);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  *bytes = available_shared(*function, blocks, block_size);
  return abi::kSuccess;
}
int cudaOccupancyMaxActiveClusters(int* clusters, const void* host, const abi::LaunchConfig* config) {
  const Function* function = as_function(host);
  if (clusters == nullptr || config == nullptr) return keep(abi::kInvalidValue);
  if (function == nullptr) return keep(abi::kInvalidDeviceFunction);
  if (const auto status = initialise(); status != abi::kSuccess) return keep(status);
  const int threads = static_cast<int>(config->block.x * config->block.y * config->block.z);
  // Portable cluster size of 8: what fits on the SMs, eight blocks at a time.
  *clusters = active_blocks(*function, threads, config->shared_bytes) * static_cast<int>(gpu().sm_count) / 8;
  return abi::kSuccess;
}
int cudaOccupancyMaxPotentialClusterSize(int* size, const void* host, const abi::LaunchConfig* config) {
  if (size == nullptr || config == nullptr) return keep(abi::kInvalidValue);
  if (as_function(host) == nullptr) return keep(abi::kInvalidDeviceFunction);
  *size = 8;
  return abi::kSuccess;
}

int cudaGetSymbolAddress(void** address, const void* symbol) {
  Variable found{};
  const auto status = variable(symbol, found);
  if (status == abi::kSuccess) *address = found.address;
  return keep(status);
}
int cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  Variable found{};
  const auto status = variable(symbol, found);
  if (status == abi::kSuccess) *bytes = found.bytes;
  return keep(status);
}

int cudaLibraryLoadData(void** library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
  return library == nullptr ? keep(abi::kInvalidValue) : keep(load_module(*library, code));
}
int cudaLibraryUnload(void* library) { return keep(unload_module(library)); }
int cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
  if (kernel == nullptr || name == nullptr) return keep(abi::kInvalidValue);
  Function* function = nullptr;
  const auto status = module_function(function, library, name);
  *kernel = function;
  return keep(status);
}

}  // extern "C"
