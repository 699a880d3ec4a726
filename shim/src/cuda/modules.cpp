// Modules loaded at run time: Triton's and nvrtc's cubins, PTX text, fat binaries.
//
// A cubin is an ELF file: sections .text.NAME (kernels), .nv.info and .nv.info.NAME (attributes: registers,
// parameters), .nv.shared.NAME. PTX is text with .entry NAME. A fat binary may be compressed and is not read: its
// kernels are known by the names that are asked for.
#include <elf.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "cuda/functions.hpp"
#include "cuda/memory.hpp"

namespace phantora::cuda {
namespace {

struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, Variable> globals;
  bool opaque = false;  // kernels cannot be listed: any name is one
};

struct Modules {
  std::mutex mutex;
  std::unordered_set<void*> alive;
  std::unordered_set<const void*> functions;
};

Modules& modules() {
  static Modules* instance = new Modules;
  return *instance;
}

Function& add_function(Module& module, const std::string& name) {
  auto [it, added] = module.functions.try_emplace(name);
  if (added) {
    it->second = std::make_unique<Function>();
    it->second->name = it->first.c_str();
    it->second->from_module = true;
    it->second->module = &module;
  }
  return *it->second;
}

// Attribute records of .nv.info: u8 format, u8 id, u16 value or size, then (format 4) `size` bytes.
constexpr std::uint8_t kSized = 4;
constexpr std::uint8_t kRegisterCount = 0x2f, kFrameSize = 0x11, kParameter = 0x17, kMaxThreads = 0x05,
                       kRequiredThreads = 0x10;

template <typename Use>
void each_attribute(const unsigned char* data, std::size_t bytes, Use use) {
  for (std::size_t at = 0; at + 4 <= bytes;) {
    std::uint16_t value;
    std::memcpy(&value, data + at + 2, 2);
    const std::uint8_t format = data[at], id = data[at + 1];
    at += 4;
    if (format != kSized) continue;
    if (at + value > bytes) return;
    use(id, data + at, static_cast<std::size_t>(value));
    at += value;
  }
}

std::uint32_t word(const unsigned char* data, std::size_t index) {
  std::uint32_t value;
  std::memcpy(&value, data + index * 4, 4);
  return value;
}

void read_function_attributes(Function& function, const unsigned char* data, std::size_t bytes) {
  each_attribute(data, bytes, [&](std::uint8_t id, const unsigned char* value, std::size_t size) {
    if (id == kParameter && size >= 12) {
      // index word, then u16 ordinal, u16 offset, then flags with the size in bits 18 and up
      const std::size_t ordinal = word(value, 1) & 0xffff;
      if (ordinal >= 4096) return;
      if (function.parameters.size() <= ordinal) function.parameters.resize(ordinal + 1);
      function.parameters[ordinal] = {word(value, 1) >> 16, word(value, 2) >> 18};
    } else if ((id == kMaxThreads || id == kRequiredThreads) && size >= 12) {
      const std::uint64_t threads = static_cast<std::uint64_t>(word(value, 0)) * word(value, 1) * word(value, 2);
      if (threads > 0 && threads <= 1024) function.max_threads = static_cast<int>(threads);
    }
  });
}

bool read_cubin(Module& module, const unsigned char* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), image + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  if (header.e_shstrndx >= sections.size()) return false;
  const char* names = reinterpret_cast<const char*>(image + sections[header.e_shstrndx].sh_offset);
  const auto starts = [](const char* text, const char* prefix) {
    return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
  };
  const Elf64_Shdr* symbols = nullptr;
  for (const Elf64_Shdr& section : sections) {
    const char* name = names + section.sh_name;
    if (starts(name, ".text.")) add_function(module, name + 6);
    if (section.sh_type == SHT_SYMTAB) symbols = &section;
  }
  for (const Elf64_Shdr& section : sections) {
    const char* name = names + section.sh_name;
    const unsigned char* data = image + section.sh_offset;
    if (starts(name, ".nv.info.")) {
      if (const auto it = module.functions.find(name + 9); it != module.functions.end()) {
        read_function_attributes(*it->second, data, section.sh_size);
      }
    } else if (starts(name, ".nv.shared.")) {
      if (const auto it = module.functions.find(name + 11); it != module.functions.end()) {
        it->second->static_shared = static_cast<int>(section.sh_size);
      }
    } else if (std::strcmp(name, ".nv.info") == 0 && symbols != nullptr && symbols->sh_link < sections.size()) {
      const char* strings = reinterpret_cast<const char*>(image + sections[symbols->sh_link].sh_offset);
      const std::size_t count = symbols->sh_size / sizeof(Elf64_Sym);
      each_attribute(data, section.sh_size, [&](std::uint8_t id, const unsigned char* value, std::size_t size) {
        if ((id != kRegisterCount && id != kFrameSize) || size < 8 || word(value, 0) >= count) return;
        Elf64_Sym symbol;
        std::memcpy(&symbol, image + symbols->sh_offset + word(value, 0) * sizeof symbol, sizeof symbol);
        const auto it = module.functions.find(strings + symbol.st_name);
        if (it == module.functions.end()) return;
        (id == kRegisterCount ? it->second->registers : it->second->local_bytes) = static_cast<int>(word(value, 1));
      });
    }
  }
  return true;
}

void read_ptx(Module& module, const char* text) {
  for (const char* at = std::strstr(text, ".entry"); at != nullptr; at = std::strstr(at, ".entry")) {
    at += 6;
    while (std::isspace(static_cast<unsigned char>(*at)) != 0) ++at;
    const char* end = at;
    while (std::isalnum(static_cast<unsigned char>(*end)) != 0 || *end == '_' || *end == '$') ++end;
    if (end > at) add_function(module, std::string(at, end));
  }
}

}  // namespace

Status load_module(void*& handle, const void* image) {
  if (image == nullptr) return abi::kInvalidValue;
  if (const Status status = ready(); status != abi::kSuccess) return status;
  client::charge(client::CallKind::kModuleLoad);
  auto module = std::make_unique<Module>();
  const auto* bytes = static_cast<const unsigned char*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) {
    if (!read_cubin(*module, bytes)) return abi::kInvalidImage;
  } else if (bytes[0] == '/' || bytes[0] == '.' || bytes[0] == '\n') {
    read_ptx(*module, static_cast<const char*>(image));
    if (module->functions.empty()) return abi::kInvalidImage;
  } else {
    module->opaque = true;
  }
  Modules& m = modules();
  std::lock_guard lock(m.mutex);
  m.alive.insert(module.get());
  for (const auto& entry : module->functions) m.functions.insert(entry.second.get());
  handle = module.release();
  return abi::kSuccess;
}

Status load_module_file(void*& handle, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return abi::kFileNotFound;
  std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return load_module(handle, image.c_str());
}

bool is_module(void* handle) {
  std::lock_guard lock(modules().mutex);
  return modules().alive.contains(handle);
}

bool is_function(const void* handle) {
  std::lock_guard lock(modules().mutex);
  return modules().functions.contains(handle);
}

Status unload_module(void* handle) {
  Modules& m = modules();
  std::lock_guard lock(m.mutex);
  if (m.alive.erase(handle) == 0) return abi::kInvalidHandle;
  auto* module = static_cast<Module*>(handle);
  for (const auto& entry : module->functions) m.functions.erase(entry.second.get());
  for (const auto& entry : module->globals) release(entry.second.address);
  delete module;
  return abi::kSuccess;
}

Status module_function(Function*& function, void* handle, const char* name) {
  Modules& m = modules();
  std::lock_guard lock(m.mutex);
  if (!m.alive.contains(handle)) return abi::kInvalidHandle;
  auto* module = static_cast<Module*>(handle);
  if (module->opaque) {
    function = &add_function(*module, name);
    m.functions.insert(function);
    return abi::kSuccess;
  }
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return abi::kNotFound;
  function = found->second.get();
  return abi::kSuccess;
}

// Sizes of globals are not read: a few bytes that read as zeros stand for them.
Status module_global(void*& address, std::size_t& bytes, void* handle, const char* name) {
  if (!is_module(handle)) return abi::kInvalidHandle;
  auto* module = static_cast<Module*>(handle);
  auto [it, added] = module->globals.try_emplace(name);
  if (added) {
    it->second.bytes = 256;
    if (const Status status = allocate(it->second.address, it->second.bytes, current_node_device());
        status != abi::kSuccess) {
      return status;
    }
  }
  address = it->second.address;
  bytes = it->second.bytes;
  return abi::kSuccess;
}

unsigned module_function_count(void* handle) {
  return is_module(handle) ? static_cast<unsigned>(static_cast<Module*>(handle)->functions.size()) : 0;
}

}  // namespace phantora::cuda
