#include "libc/real.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "client_state.hpp"

namespace phantora::libc {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"
namespace real {
#define PHANTORA_DEFINE_REAL(name, version) constinit Real<decltype(&::name)> name{#name, version};
PHANTORA_REAL_FUNCTIONS(PHANTORA_DEFINE_REAL)
#undef PHANTORA_DEFINE_REAL
}  // namespace real
#pragma GCC diagnostic pop

namespace {

using Lookup = void* (*)(void*, const char*);

// `dlsym` itself may be wrapped by this library; the real one is found by its version.
Lookup real_dlsym() {
  static std::atomic<Lookup> found{nullptr};
  Lookup lookup = found.load(std::memory_order_relaxed);
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.0"}) {
    if (lookup != nullptr) break;
    lookup = reinterpret_cast<Lookup>(dlvsym(RTLD_NEXT, "dlsym", version));
  }
  found.store(lookup, std::memory_order_relaxed);
  return lookup;
}

struct Range {
  const char* first;
  const char* last;
};
Range g_python = {nullptr, nullptr};

int find_object(dl_phdr_info* info, std::size_t, void* symbol) {
  const char* wanted = static_cast<const char*>(symbol);
  for (int index = 0; index < info->dlpi_phnum; ++index) {
    const auto& header = info->dlpi_phdr[index];
    const char* first = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    if (wanted >= first && wanted < first + header.p_memsz) g_python = {first, first + header.p_memsz};
  }
  return 0;
}

}  // namespace

void* find_real(const char* name, const char* version) {
  void* found = version == nullptr ? nullptr : dlvsym(RTLD_NEXT, name, version);
  const Lookup lookup = real_dlsym();
  if (found == nullptr && lookup != nullptr) found = lookup(RTLD_NEXT, name);
  return found;
}

void* find_in(void* library, const char* name) {
  const Lookup lookup = real_dlsym();
  return lookup == nullptr ? nullptr : lookup(library, name);
}

void resolve_all() {
#define PHANTORA_RESOLVE_REAL(name, version) real::name.get();
  PHANTORA_REAL_FUNCTIONS(PHANTORA_RESOLVE_REAL)
#undef PHANTORA_RESOLVE_REAL
  const Lookup lookup = real_dlsym();
  if (g_python.first != nullptr || lookup == nullptr) return;
  void* symbol = lookup(RTLD_DEFAULT, "PyEval_RestoreThread");
  if (symbol != nullptr) dl_iterate_phdr(find_object, symbol);
}

bool from_python(const void* return_address) {
  return return_address >= g_python.first && return_address < g_python.last;
}

}  // namespace phantora::libc
