#include "phantora/table.hpp"

#include <algorithm>

#include "client.hpp"
#include "cuda/errors.hpp"

namespace phantora::table {
namespace {

void* search(const Entry* entries, unsigned count, std::string_view name) {
  const Entry* end = entries + count;
  const Entry* found = std::lower_bound(
      entries, end, name, [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  if (found == end || found->name != name) return nullptr;
  return reinterpret_cast<void*>(found->address);
}

}  // namespace

void* find(std::string_view name) { return search(kEntries, kEntryCount, name); }

void* find_base(std::string_view name) {
  void* address = search(kBaseEntries, kBaseEntryCount, name);
  return address != nullptr ? address : find(name);
}

void refuse(const char* name) { client::note("unsupported", name); }

void refuse_runtime(const char* name) {
  refuse(name);
  cuda::keep(abi::kNotSupported);
}

}  // namespace phantora::table
