// The state in which this library calls ATen itself: unseen by autograd, autocast, Python modes, profilers and our own
// callback; silent; on one thread.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

namespace phantora::adaptor {

class QuietState {
 public:
  QuietState();
  ~QuietState();
  QuietState(const QuietState&) = delete;
  QuietState& operator=(const QuietState&) = delete;

 private:
  class Silence : public c10::WarningHandler {
   public:
    void process(const c10::Warning&) override {}
  };
  static Silence silence_;

  at::RecordFunctionGuard no_callbacks_{/*is_enabled=*/false};
  c10::impl::ForceDispatchKeyGuard plain_keys_;
  c10::WarningUtils::WarningHandlerGuard no_warnings_{&silence_};
  int threads_;
};

}  // namespace phantora::adaptor
