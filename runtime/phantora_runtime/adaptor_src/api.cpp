#include "api.hpp"

#include <dlfcn.h>

namespace phantora::adaptor {

namespace {

template <typename Function>
void look_up(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

bool Api::complete() const {
  return mode != nullptr && op_begin != nullptr && op_end != nullptr && run_on_ranges != nullptr && settle != nullptr &&
         mark_unknown != nullptr && mark_known != nullptr && is_known != nullptr && is_device_pointer != nullptr;
}

void Api::resolve() {
  look_up(mode, "phantora_mode");
  look_up(note, "phantora_note");
  look_up(op_begin, "phantora_op_begin");
  look_up(op_end, "phantora_op_end");
  look_up(run_on_ranges, "phantora_run_on_ranges");
  look_up(settle, "phantora_settle");
  look_up(mark_unknown, "phantora_mark_unknown");
  look_up(mark_known, "phantora_mark_known");
  look_up(is_known, "phantora_is_known");
  look_up(is_device_pointer, "phantora_is_device_pointer");
}

Api& api() {
  static Api instance;
  return instance;
}

}  // namespace phantora::adaptor
