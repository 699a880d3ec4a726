// The state in which this library calls ATen itself: unseen by autograd, autocast, Python modes, profilers and our own
// callback; silent; on one thread; and without a trace in the default CPU generator.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

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

// Seeds the default CPU generator while it lives; operators without a generator argument draw from that one.
class SeededDefaultGenerator {
 public:
  explicit SeededDefaultGenerator(std::uint64_t seed);
  ~SeededDefaultGenerator();
  SeededDefaultGenerator(const SeededDefaultGenerator&) = delete;
  SeededDefaultGenerator& operator=(const SeededDefaultGenerator&) = delete;

 private:
  at::Generator generator_;
  c10::intrusive_ptr<c10::TensorImpl> state_;
};

}  // namespace phantora::adaptor
