// The table of intercepted functions at run time: what look-ups by name answer, and how a refused call speaks up.
// The entries are generated from shim/table.
#pragma once

#include <string_view>

namespace phantora::table {

struct Entry {
  const char* name;
  void (*address)();
};
extern const Entry kEntries[];       // sorted by name: every row
extern const unsigned kEntryCount;
extern const Entry kBaseEntries[];   // sorted by name: unversioned driver names
extern const unsigned kBaseEntryCount;

// Address of a row's function, nullptr when there is no such row. dlsym and ctypes see these names.
void* find(std::string_view name);
// The same by the unversioned name first, as cuGetProcAddress takes it.
void* find_base(std::string_view name);
// Names the function in the report, once. Every refused call goes through here.
void refuse(const char* name);
// The same for a function of the CUDA runtime: the thread's last error becomes "not supported".
void refuse_runtime(const char* name);

}  // namespace phantora::table
