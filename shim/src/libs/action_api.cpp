// The exported C functions of the value queue (phantora/adaptor_api.h): the torch adaptor's way into libs/values.hpp.
#include <type_traits>

#include "client.hpp"
#include "libs/values.hpp"
#include "phantora/adaptor_api.h"

namespace values = phantora::values;

namespace {

// The layout of values::Range, so that the adaptor's arrays need no copy.
static_assert(sizeof(phantora_range) == sizeof(values::Range) && std::is_standard_layout_v<values::Range>);

struct Foreign {  // an action whose callbacks have C types
  int (*try_run)(void*);
  void (*destroy)(void*);
  void* context;
};

bool try_foreign(void* context) {
  const auto* foreign = static_cast<Foreign*>(context);
  return foreign->try_run(foreign->context) != 0;
}

void destroy_foreign(void* context) {
  auto* foreign = static_cast<Foreign*>(context);
  if (foreign->destroy != nullptr) foreign->destroy(foreign->context);
  delete foreign;
}

std::span<const values::Range> span_of(const phantora_range* ranges, std::size_t count) {
  return {reinterpret_cast<const values::Range*>(ranges), count};
}

}  // namespace

extern "C" {

void phantora_run_in_order(int (*try_run)(void*), void (*destroy)(void*), void* context) {
  phantora::client::run_in_order(try_foreign, destroy_foreign, new Foreign{try_run, destroy, context});
}

void phantora_run_on_ranges(int (*try_run)(void*), void (*destroy)(void*), void* context, const phantora_range* reads,
                            size_t read_count, const phantora_range* writes, size_t write_count) {
  values::Access access;
  access.more_reads = span_of(reads, read_count);
  access.more_writes = span_of(writes, write_count);
  values::run(try_foreign, destroy_foreign, new Foreign{try_run, destroy, context}, access);
}

void phantora_settle(const void* pointer, size_t bytes) {
  if (!values::pending()) return;
  values::Access access;
  access.reads[0] = values::range(pointer, bytes);
  access.host_visible = true;
  values::run([](void*) { return true; }, nullptr, nullptr, access);
  values::drain();
}

}  // extern "C"
