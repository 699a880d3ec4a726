#include "cuda/errors.hpp"

#include <algorithm>
#include <iterator>

namespace phantora::cuda {
namespace {

struct Entry {
  int value;
  const char* runtime_name;
  const char* driver_name;
  const char* text;
};

// Sorted by value.
constexpr Entry kErrors[] = {
#include "cuda/error_table.inc"
};

const Entry* find(int status) {
  const Entry* end = std::end(kErrors);
  const Entry* found = std::lower_bound(std::begin(kErrors), end, status,
                                        [](const Entry& entry, int value) { return entry.value < value; });
  return found != end && found->value == status ? found : nullptr;
}

thread_local int last_error = abi::kSuccess;

}  // namespace

int keep(int status) {
  if (status != abi::kSuccess) last_error = status;
  return status;
}

int peek_last_error() { return last_error; }

int take_last_error() {
  const int status = last_error;
  last_error = abi::kSuccess;
  return status;
}

const char* runtime_error_name(int status) {
  const Entry* entry = find(status);
  return entry != nullptr && entry->runtime_name != nullptr ? entry->runtime_name : "unrecognized error code";
}

const char* driver_error_name(int status) {
  const Entry* entry = find(status);
  return entry == nullptr ? nullptr : entry->driver_name;
}

const char* error_text(int status) {
  const Entry* entry = find(status);
  return entry == nullptr ? nullptr : entry->text;
}

}  // namespace phantora::cuda
