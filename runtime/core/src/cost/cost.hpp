// How long each GPU operation takes, and how that is known. One CostModel serves one run.
//
// Every answer is a whole number of nanoseconds that is the same on every machine: the models use plain IEEE
// arithmetic and the logarithms of math.hpp, never libm, and are compiled without contraction or -ffast-math.
// No answer is 0: whatever runs on a GPU takes at least one nanosecond.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "phantora/wire.hpp"

namespace phantora::core {
class Config;
}

namespace phantora::cost {

// How a duration is known. A factor fitted on whole training runs turns measured and interpolated into calibrated.
enum class Source : std::uint8_t { kMeasured = 0, kInterpolated, kAnalytical, kCalibrated, kUnknown };
inline constexpr int kSourceCount = 5;
const char* source_name(Source source);

struct Cost {
  std::uint64_t duration_ns = 1;
  Source source = Source::kUnknown;
  double spread = 1.0;  // half-width of the interval over the duration
};

class CostModel {
 public:
  explicit CostModel(const core::Config& config);  // throws core::ConfigError naming the key or the table's line
  ~CostModel();
  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;

  // `mangled_name` and `op_name` may be empty. Answers are remembered per distinct launch.
  Cost kernel(const wire::KernelOp& op, std::string_view mangled_name, std::string_view op_name);
  Cost gemm(const wire::GemmOp& op);
  Cost copy(const wire::CopyOp& op);
  Cost memset(std::uint64_t bytes);
  // `member_world_ranks`: the communicator's members in its own rank order. For send/recv `op.peer` indexes it and
  // `self_world_rank` is the caller; others ignore that.
  Cost collective(const wire::CollectiveOp& op, const std::vector<std::uint32_t>& member_world_ranks,
                  std::uint32_t self_world_rank = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phantora::cost
