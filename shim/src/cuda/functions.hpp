// Kernels: those registered by the host code that nvcc generates, and those of modules loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/state.hpp"

namespace phantora::cuda {

struct Parameter {
  std::uint32_t offset = 0, bytes = 0;
};

struct Function {
  const char* name = nullptr;  // mangled
  std::uint64_t hash = 0;      // of the name; the core knows it once `known` is set
  bool known = false;
  // How argument 0 says how many elements there are: bytes of that integer, 0 it does not, -1 not looked at yet.
  std::int8_t count_bytes = -1;
  std::uint16_t count_argument = 0;
  bool from_module = false;
  int registers = 40;  // assumed where the code was not read
  int static_shared = 0;
  int local_bytes = 0;
  int max_threads = 1024;
  int max_dynamic_shared = -1;        // -1: the limit without opting in
  std::vector<Parameter> parameters;  // of module functions
  void* module = nullptr;
};

struct LaunchShape {
  std::uint32_t grid[3], block[3];
  std::uint64_t shared_bytes;
};

// Registration (fat binaries of host programs).
void** register_binary();
void register_function(void** binary, const void* host, const char* name);
void unregister_binary(void** binary);
struct Variable {
  void* address;
  std::size_t bytes;
};
void register_variable(const void* host, const char* name, std::size_t bytes);
// Device memory behind a __device__ variable; made on first use.
Status variable(const void* host, Variable& found);

Function* find_function(const void* host);  // by host stub or by handle; nullptr unknown
bool is_function(const void* handle);
Status launch(Function* function, const LaunchShape& shape, void** arguments, void* stream);

// Modules and libraries.
Status load_module(void*& module, const void* image);
Status load_module_file(void*& module, const char* path);
Status unload_module(void* module);
Status module_function(Function*& function, void* module, const char* name);
Status module_global(void*& address, std::size_t& bytes, void* module, const char* name);
unsigned module_function_count(void* module);
bool is_module(void* module);

// CU_FUNC_ATTRIBUTE_*.
Status function_attribute(int& value, int attribute, const Function& function);
Status set_function_attribute(Function& function, int attribute, int value);
int active_blocks(const Function& function, int block_size, std::size_t dynamic_shared);
std::size_t available_shared(const Function& function, int blocks, int block_size);

}  // namespace phantora::cuda
