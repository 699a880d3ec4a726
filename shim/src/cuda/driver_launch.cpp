// CUDA driver: modules, libraries, kernels, launches, occupancy.
#include <cstring>

#include "cuda/functions.hpp"

using namespace phantora::cuda;
namespace abi = phantora::abi;

namespace {

Function* as_function(void* handle) {
  if (is_function(handle)) return static_cast<Function*>(handle);
  return find_function(handle);  // a handle that the runtime gave out, or a host stub
}

int module_function_out(void** out, void* module, const char* name) {
  if (out == nullptr || name == nullptr) return abi::kInvalidValue;
  Function* function = nullptr;
  const auto status = module_function(function, module, name);
  *out = function;
  return status;
}

int launch_on(void* handle, const LaunchShape& shape, void* stream, void** parameters, void** extra) {
  Function* function = as_function(handle);
  if (function == nullptr) return abi::kInvalidHandle;
  if (parameters != nullptr || extra == nullptr) return launch(function, shape, parameters, stream);
  // CU_LAUNCH_PARAM_BUFFER_POINTER (1), pointer, CU_LAUNCH_PARAM_BUFFER_SIZE (2), &size, CU_LAUNCH_PARAM_END (0).
  char* buffer = nullptr;
  for (void** at = extra; *at != nullptr; at += 2) {
    if (*at == reinterpret_cast<void*>(1)) buffer = static_cast<char*>(at[1]);
  }
  std::vector<void*> pointers;
  for (const Parameter& parameter : function->parameters) pointers.push_back(buffer + parameter.offset);
  return launch(function, shape, buffer == nullptr || pointers.empty() ? nullptr : pointers.data(), stream);
}

}  // namespace

extern "C" {

int cuModuleLoad(void** module, const char* path) {
  return module == nullptr || path == nullptr ? abi::kInvalidValue : load_module_file(*module, path);
}
int cuModuleLoadData(void** module, const void* image) {
  return module == nullptr ? abi::kInvalidValue : load_module(*module, image);
}
int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return cuModuleLoadData(module, image);
}
int cuModuleLoadFatBinary(void** module, const void* image) { return cuModuleLoadData(module, image); }
int cuModuleUnload(void* module) { return unload_module(module); }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return module_function_out(function, module, name);
}
int cuModuleGetFunctionCount(unsigned* count, void* module) {
  if (count == nullptr || !is_module(module)) return abi::kInvalidValue;
  *count = module_function_count(module);
  return abi::kSuccess;
}
int cuModuleGetGlobal_v2(std::uint64_t* pointer, std::size_t* bytes, void* module, const char* name) {
  if (name == nullptr) return abi::kInvalidValue;
  void* address = nullptr;
  std::size_t size = 0;
  const auto status = module_global(address, size, module, name);
  if (status != abi::kSuccess) return status;
  if (pointer != nullptr) *pointer = reinterpret_cast<std::uint64_t>(address);
  if (bytes != nullptr) *bytes = size;
  return abi::kSuccess;
}
int cuModuleGetLoadingMode(int* mode) {
  if (mode == nullptr) return abi::kInvalidValue;
  *mode = 2;  // lazy, CUDA's default since 12.2
  return abi::kSuccess;
}

int cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  return library == nullptr ? abi::kInvalidValue : load_module(*library, code);
}
int cuLibraryLoadFromFile(void** library, const char* path, int*, void**, unsigned, int*, void**, unsigned) {
  return cuModuleLoad(library, path);
}
int cuLibraryUnload(void* library) { return unload_module(library); }
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return module_function_out(kernel, library, name);
}
int cuLibraryGetModule(void** module, void* library) {
  if (module == nullptr || !is_module(library)) return abi::kInvalidValue;
  *module = library;
  return abi::kSuccess;
}
int cuKernelGetFunction(void** function, void* kernel) {
  if (function == nullptr) return abi::kInvalidValue;
  *function = as_function(kernel);
  return *function == nullptr ? abi::kInvalidHandle : abi::kSuccess;
}
int cuFuncGetModule(void** module, void* handle) {
  const Function* function = as_function(handle);
  if (module == nullptr || function == nullptr) return module == nullptr ? abi::kInvalidValue : abi::kInvalidHandle;
  *module = function->module;
  return abi::kSuccess;
}
int cuFuncGetName(const char** name, void* handle) {
  const Function* function = as_function(handle);
  if (name == nullptr || function == nullptr) return name == nullptr ? abi::kInvalidValue : abi::kInvalidHandle;
  *name = function->name;
  return abi::kSuccess;
}
int cuKernelGetName(const char** name, void* kernel) { return cuFuncGetName(name, kernel); }
int cuFuncLoad(void* handle) { return as_function(handle) == nullptr ? abi::kInvalidHandle : abi::kSuccess; }
int cuFuncIsLoaded(int* state, void* handle) {
  if (state == nullptr) return abi::kInvalidValue;
  *state = 1;
  return cuFuncLoad(handle);
}
int cuFuncGetParamInfo(void* handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  const Function* function = as_function(handle);
  if (function == nullptr) return abi::kInvalidHandle;
  if (index >= function->parameters.size()) return abi::kInvalidValue;
  if (offset != nullptr) *offset = function->parameters[index].offset;
  if (bytes != nullptr) *bytes = function->parameters[index].bytes;
  return abi::kSuccess;
}
int cuKernelGetParamInfo(void* kernel, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return cuFuncGetParamInfo(kernel, index, offset, bytes);
}

int cuFuncGetAttribute(int* value, int attribute, void* handle) {
  const Function* function = as_function(handle);
  if (function == nullptr || value == nullptr) return value == nullptr ? abi::kInvalidValue : abi::kInvalidHandle;
  return function_attribute(*value, attribute, *function);
}
int cuFuncSetAttribute(void* handle, int attribute, int value) {
  Function* function = as_function(handle);
  return function == nullptr ? abi::kInvalidHandle : set_function_attribute(*function, attribute, value);
}
int cuFuncSetCacheConfig(void* handle, int) {
  return as_function(handle) == nullptr ? abi::kInvalidHandle : abi::kSuccess;
}
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int) {
  return cuFuncGetAttribute(value, attribute, kernel);
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int) {
  return cuFuncSetAttribute(kernel, attribute, value);
}
int cuKernelSetCacheConfig(void* kernel, int configuration, int) { return cuFuncSetCacheConfig(kernel, configuration); }

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void* stream, void** parameters, void** extra) {
  return launch_on(function, {{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, parameters, extra);
}
int cuLaunchKernelEx(const abi::DriverLaunchConfig* c, void* function, void** parameters, void** extra) {
  if (c == nullptr) return abi::kInvalidValue;
  const LaunchShape shape{
      {c->grid[0], c->grid[1], c->grid[2]}, {c->block[0], c->block[1], c->block[2]}, c->shared_bytes};
  return launch_on(function, shape, c->stream, parameters, extra);
}
int cuLaunchCooperativeKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared_bytes, void* stream, void** parameters) {
  const Function* function = as_function(handle);
  if (function == nullptr) return abi::kInvalidHandle;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  const std::uint64_t blocks = static_cast<std::uint64_t>(gx) * gy * gz;
  const int each = active_blocks(*function, static_cast<int>(bx * by * bz), shared_bytes);
  if (blocks > static_cast<std::uint64_t>(each) * gpu().sm_count) return abi::kCooperativeTooLarge;
  return launch_on(handle, {{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, parameters, nullptr);
}

int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* handle, int block_size, std::size_t shared,
                                                         unsigned) {
  const Function* function = as_function(handle);
  if (blocks == nullptr || function == nullptr) return blocks == nullptr ? abi::kInvalidValue : abi::kInvalidHandle;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  *blocks = active_blocks(*function, block_size, shared);
  return abi::kSuccess;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int block_size, std::size_t shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_size, shared, 0);
}
int cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, void* handle, std::size_t (*shared_of)(int),
                                              std::size_t shared, int limit, unsigned) {
  const Function* function = as_function(handle);
  if (grid == nullptr || block == nullptr) return abi::kInvalidValue;
  if (function == nullptr) return abi::kInvalidHandle;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  const int most = limit > 0 && limit < function->max_threads ? limit : function->max_threads;
  int best = 0, best_size = 32, best_blocks = 1;
  for (int size = most / 32 * 32; size >= 32; size -= 32) {
    const int blocks = active_blocks(*function, size, shared_of == nullptr ? shared : shared_of(size));
    if (blocks * size <= best) continue;
    best = blocks * size;
    best_size = size;
    best_blocks = blocks;
  }
  *block = best_size;
  *grid = best_blocks * static_cast<int>(gpu().sm_count);
  return abi::kSuccess;
}
int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void* handle, std::size_t (*shared_of)(int),
                                     std::size_t shared, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared_of, shared, limit, 0);
}
int cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, void* handle, int blocks, int block_size) {
  const Function* function = as_function(handle);
  if (bytes == nullptr || function == nullptr) return bytes == nullptr ? abi::kInvalidValue : abi::kInvalidHandle;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  *bytes = available_shared(*function, blocks, block_size);
  return abi::kSuccess;
}
int cuOccupancyMaxActiveClusters(int* clusters, void* handle, const abi::DriverLaunchConfig* config) {
  const Function* function = as_function(handle);
  if (clusters == nullptr || config == nullptr) return abi::kInvalidValue;
  if (function == nullptr) return abi::kInvalidHandle;
  if (const auto status = initialise(); status != abi::kSuccess) return status;
  const int threads = static_cast<int>(config->block[0] * config->block[1] * config->block[2]);
  *clusters = active_blocks(*function, threads, config->shared_bytes) * static_cast<int>(gpu().sm_count) / 8;
  return abi::kSuccess;
}
int cuOccupancyMaxPotentialClusterSize(int* size, void* handle, const abi::DriverLaunchConfig* config) {
  if (size == nullptr || config == nullptr) return abi::kInvalidValue;
  if (as_function(handle) == nullptr) return abi::kInvalidHandle;
  *size = 8;
  return abi::kSuccess;
}

// The map is opaque to programs: the base address is all that the shim puts there.
int cuTensorMapEncodeTiled(void* map, int, std::uint32_t rank, void* address, const std::uint64_t*,
                           const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int, int, int, int) {
  if (map == nullptr || rank < 1 || rank > 5 || (reinterpret_cast<std::uintptr_t>(address) & 15) != 0)
    return abi::kInvalidValue;
  std::memset(map, 0, 128);
  std::memcpy(map, &address, sizeof address);
  return abi::kSuccess;
}

}  // extern "C"
