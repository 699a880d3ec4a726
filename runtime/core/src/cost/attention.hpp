// Fused attention kernels, recognised by name and launch geometry.
//
// What is measured: FlashAttention-3 forward over lengths, heads and head sizes (a serving stack's table), and
// FlashAttention-2 forward and forward+backward on one line of shapes (published charts). A FlashAttention-2 launch
// takes the table's time for its shape, scaled by the ratio of the two on that line.
#pragma once

#include <optional>
#include <string_view>

#include "cost.hpp"
#include "membound.hpp"
#include "parameters.hpp"
#include "table.hpp"

namespace phantora::cost {

struct AttentionLaunch {
  enum class Part { kForward, kBackward, kBackwardDot, kBackwardConvert, kCombine };
  Part part = Part::kForward;
  bool memory_efficient = false;  // CUTLASS kernels instead of FlashAttention-2
  bool causal = false;
  bool shape_from_geometry = true;
  std::uint32_t head_dim = 128;
  std::uint64_t length_q = 1, length_k = 1;
  std::uint64_t heads = 1;  // batch x heads
};

// Nothing: not an attention kernel, or one whose shape cannot be read.
std::optional<AttentionLaunch> recognise_attention(const wire::KernelOp& op, std::string_view name);

class AttentionModel {
 public:
  AttentionModel(const GpuParameters& gpu, AttentionTable table, const MemoryBoundModel& memory);
  Cost cost(const AttentionLaunch& launch) const;

 private:
  double table_ns(std::uint32_t head_dim, std::uint64_t length, std::uint64_t heads, bool& inside) const;
  double published_tflops(const char* direction, std::uint32_t head_dim, bool causal, std::uint64_t length) const;
  double forward_ns(const AttentionLaunch& launch, bool& inside) const;
  double backward_ratio(std::uint32_t head_dim, bool causal, std::uint64_t length) const;

  const GpuParameters& gpu_;
  AttentionTable table_;
  const MemoryBoundModel& memory_;
};

}  // namespace phantora::cost
