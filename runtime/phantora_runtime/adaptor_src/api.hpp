// The functions the shim exports to this library (contract: shim/include/phantora/adaptor_api.h). They are looked up by
// name at load, so that the adaptor can be built and loaded where no shim is: then each of them does nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phantora::adaptor {

struct Range {  // struct phantora_range, but writable
  char* begin;
  std::size_t bytes;
};

struct Api {
  int (*mode)() = nullptr;
  void (*note)(const char* kind, const char* text) = nullptr;
  void (*op_begin)(const char* name, std::uint64_t input_bytes) = nullptr;
  void (*op_end)(std::uint64_t output_bytes) = nullptr;
  void (*run_on_ranges)(int (*try_run)(void*), void (*destroy)(void*), void* context, const Range* reads,
                        std::size_t read_count, const Range* writes, std::size_t write_count) = nullptr;
  void (*settle)(const void* pointer, std::size_t bytes) = nullptr;
  void (*mark_unknown)(void* pointer, std::size_t bytes) = nullptr;
  void (*mark_known)(void* pointer, std::size_t bytes) = nullptr;
  int (*is_known)(const void* pointer, std::size_t bytes) = nullptr;
  int (*is_device_pointer)(const void* pointer) = nullptr;

  // True when values can be tracked: all of the functions above were found.
  bool complete() const;
  // Looks every function up anew.
  void resolve();
};

Api& api();

}  // namespace phantora::adaptor
