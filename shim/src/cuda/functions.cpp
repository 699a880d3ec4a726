#include "cuda/functions.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "cuda/kernel_name.hpp"
#include "cuda/memory.hpp"
#include "cuda/streams.hpp"
#include "libs/notes.hpp"

namespace phantora::cuda {
namespace {

struct Binary {
  std::vector<const void*> hosts;
};

struct HostVariable {
  std::string name;
  std::size_t bytes;
  int node_device = -1;
  void* address = nullptr;
};

struct Registry {
  std::shared_mutex mutex;
  std::deque<Function> functions;  // stable addresses: these are the handles
  std::unordered_map<const void*, Function*> by_host;
  std::unordered_map<const void*, HostVariable> variables;
};

Registry& registry() {
  static Registry* instance = new Registry;  // registration runs before main and in any order
  return *instance;
}

// A launch looks its stub up here first; entries are never removed while a program runs.
struct CacheEntry {
  const void* host;
  Function* function;
};
thread_local CacheEntry cache[256];

std::size_t cache_index(const void* host) {
  return (reinterpret_cast<std::uintptr_t>(host) >> 4 ^ reinterpret_cast<std::uintptr_t>(host) >> 12) %
         std::size(cache);
}

// "void at::native::x_kernel<...>(int, ...)": the text of the first parameter where the kernel's own name (without
// template arguments) says that it walks over elements.
std::string_view first_parameter(std::string_view demangled) {
  int depth = 0;
  std::size_t name_end = std::string_view::npos, open = std::string_view::npos;
  for (std::size_t i = 0; i < demangled.size(); ++i) {
    const char c = demangled[i];
    if (demangled.substr(i).starts_with("(anonymous namespace)")) {
      i += std::strlen("(anonymous namespace)") - 1;
      continue;
    }
    if (c == '<') {
      if (depth == 0) name_end = i;
      ++depth;
    } else if (c == '>' && depth > 0 && demangled[i - 1] != '-') {
      --depth;
    } else if (c == '(' && depth == 0) {
      open = i;
      break;
    } else if (c == ':' && depth == 0) {
      name_end = std::string_view::npos;
    }
  }
  if (open == std::string_view::npos) return {};
  if (name_end == std::string_view::npos) name_end = open;
  std::string_view name = demangled.substr(0, name_end);
  if (const auto colon = name.rfind("::"); colon != std::string_view::npos) name = name.substr(colon + 2);
  if (name.find("elementwise") == std::string_view::npos && name.find("grid_stride") == std::string_view::npos)
    return {};
  std::string_view rest = demangled.substr(open + 1);
  return rest.substr(0, rest.find_first_of(",)"));
}

void find_count(Function& function) {
  function.count_bytes = 0;
  if (function.from_module) {
    // Triton kernels made by Inductor: the first 4-byte integer is xnumel.
    if (std::strncmp(function.name, "triton_", 7) != 0) return;
    for (std::size_t i = 0; i < function.parameters.size(); ++i) {
      if (function.parameters[i].bytes != 4) continue;
      function.count_argument = static_cast<std::uint16_t>(i);
      function.count_bytes = 4;
      return;
    }
    return;
  }
  if (std::strstr(function.name, "elementwise") == nullptr && std::strstr(function.name, "grid_stride") == nullptr)
    return;
  int status = 0;
  char* demangled = ::abi::__cxa_demangle(function.name, nullptr, nullptr, &status);
  if (demangled == nullptr) return;
  const std::string_view type = first_parameter(demangled);
  if (type == "int" || type == "unsigned int") function.count_bytes = 4;
  if (type == "long" || type == "unsigned long" || type == "long long") function.count_bytes = 8;
  std::free(demangled);
}

// Once per function; two threads may do it at once, with the same result.
void prepare(Function& function) {
  if (function.count_bytes < 0) find_count(function);
  function.hash = client::intern(without_build(function.name).c_str());
  libs::kernel_seen(function.name);
  function.known = true;
}

}  // namespace

void** register_binary() { return reinterpret_cast<void**>(new Binary); }

void register_function(void** binary, const void* host, const char* name) {
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  Function& function = r.functions.emplace_back();
  function.name = name;
  r.by_host[host] = &function;
  r.by_host[&function] = &function;  // the handle is as good as the stub
  reinterpret_cast<Binary*>(binary)->hosts.push_back(host);
}

void unregister_binary(void** binary) {
  // The names lie in the library that goes away. (Handles stay valid memory; using one afterwards is the program's
  // error.)
  auto* b = reinterpret_cast<Binary*>(binary);
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  for (const void* host : b->hosts) r.by_host.erase(host);
  lock.unlock();
  delete b;
}

void register_variable(const void* host, const char* name, std::size_t bytes) {
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  r.variables[host] = {name, bytes};
}

Status variable(const void* host, Variable& found) {
  if (const Status status = ready(); status != abi::kSuccess) return status;
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  const auto it = r.variables.find(host);
  if (it == r.variables.end()) return abi::kInvalidSymbol;
  HostVariable& v = it->second;
  if (v.address == nullptr) {
    // Part of the module's image in device memory, which the context's share covers: only address space is taken.
    v.node_device = current_node_device();
    if (const Status status = allocate(v.address, std::max<std::size_t>(v.bytes, 1), v.node_device);
        status != abi::kSuccess) {
      return status;
    }
  }
  found = {v.address, v.bytes};
  return abi::kSuccess;
}

Function* find_function(const void* host) {
  CacheEntry& entry = cache[cache_index(host)];
  if (entry.host == host && host != nullptr) return entry.function;
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  const auto found = r.by_host.find(host);
  if (found == r.by_host.end()) return nullptr;
  entry = {host, found->second};
  return found->second;
}

Status launch(Function* function, const LaunchShape& shape, void** arguments, void* stream) {
  std::uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0) return abi::kInvalidConfiguration;
    threads *= shape.block[i];
  }
  if (threads > 1024 || shape.grid[1] > 65535 || shape.grid[2] > 65535) return abi::kInvalidConfiguration;
  if (const Status status = ready(); status != abi::kSuccess) return status;
  if (shape.shared_bytes > gpu().shared_per_block_optin) return abi::kInvalidValue;
  if (!function->known) prepare(*function);
  wire::Record record{};
  record.type = wire::RecordType::kKernel;
  wire::KernelOp& kernel = record.kernel;
  kernel.name = function->hash;
  for (int i = 0; i < 3; ++i) {
    kernel.grid[i] = shape.grid[i];
    kernel.block[i] = shape.block[i];
  }
  kernel.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes);
  if (function->count_bytes > 0 && arguments != nullptr && arguments[function->count_argument] != nullptr) {
    std::memcpy(&kernel.elements, arguments[function->count_argument], static_cast<std::size_t>(function->count_bytes));
  }
  return enqueue(stream, client::CallKind::kLaunch, record);
}

Status function_attribute(int& value, int attribute, const Function& function) {
  const int limit = static_cast<int>(gpu().shared_per_block);
  switch (attribute) {
    case 0:
      value = function.max_threads;
      break;
    case 1:
      value = function.static_shared;
      break;
    case 2:
      value = 0;
      break;
    case 3:
      value = function.local_bytes;
      break;
    case 4:
      value = function.registers;
      break;
    case 5:
    case 6:
      value = static_cast<int>(gpu().compute_major * 10 + gpu().compute_minor);
      break;
    case 7:
      value = 0;
      break;
    case 8:
      value = function.max_dynamic_shared >= 0 ? function.max_dynamic_shared : limit - function.static_shared;
      break;
    case 9:
      value = -1;
      break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
    case 16:
      value = 0;
      break;
    default:
      return abi::kInvalidValue;
  }
  return abi::kSuccess;
}

Status set_function_attribute(Function& function, int attribute, int value) {
  constexpr int kMaxDynamicShared = 8, kCarveout = 9, kNonPortableCluster = 14, kClusterPolicy = 15;
  switch (attribute) {
    case kMaxDynamicShared:
      if (value < 0 || value + function.static_shared > static_cast<int>(gpu().shared_per_block_optin))
        return abi::kInvalidValue;
      function.max_dynamic_shared = value;
      return abi::kSuccess;
    case kCarveout:
      return value >= -1 && value <= 100 ? abi::kSuccess : abi::kInvalidValue;
    case kNonPortableCluster:
    case kClusterPolicy:
    case 10:
    case 11:
    case 12:
    case 13:
      return abi::kSuccess;
    default:
      return abi::kInvalidValue;
  }
}

int active_blocks(const Function& function, int block_size, std::size_t dynamic_shared) {
  const wire::GpuProperties& g = gpu();
  if (block_size <= 0 || block_size > 1024) return 0;
  const std::uint64_t warps = static_cast<std::uint64_t>(block_size + 31) / 32;
  std::uint64_t blocks = std::min(g.max_blocks_per_sm, g.max_threads_per_sm / 32 / warps);
  // Registers are handed out per warp in units of 256.
  const std::uint64_t per_warp = (static_cast<std::uint64_t>(function.registers) * 32 + 255) / 256 * 256;
  blocks = std::min(blocks, g.registers_per_sm / (per_warp * warps));
  const std::uint64_t shared = static_cast<std::uint64_t>(function.static_shared) + dynamic_shared;
  if (shared > g.shared_per_block_optin) return 0;
  const std::uint64_t held = (shared + g.reserved_shared_per_block + 127) / 128 * 128;
  if (held != 0) blocks = std::min(blocks, g.shared_per_sm / held);
  return static_cast<int>(blocks);
}

std::size_t available_shared(const Function& function, int blocks, int block_size) {
  const wire::GpuProperties& g = gpu();
  if (blocks <= 0 || active_blocks(function, block_size, 0) < blocks) return 0;
  const std::uint64_t each = g.shared_per_sm / static_cast<std::uint64_t>(blocks) / 128 * 128;
  const std::uint64_t taken = static_cast<std::uint64_t>(function.static_shared) + g.reserved_shared_per_block;
  return each <= taken ? 0 : std::min<std::uint64_t>(each - taken, g.shared_per_block_optin);
}

}  // namespace phantora::cuda
