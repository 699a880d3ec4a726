#include "attention.hpp"

#include <algorithm>

#include "kernel_name.hpp"
#include "math.hpp"

namespace phantora::cost {
namespace {

constexpr double kPublishedTokens = 16384.0, kPublishedHidden = 2048.0;  // the line of shapes of the published charts
constexpr double kFallbackFlops = 300e12;  // without a table: about what FlashAttention-2 reaches on H100
constexpr double kTableFloorNs = 3000.0;   // assumed: the shortest forward kernel by itself

double forward_flops(double heads, double length_q, double length_k, double head_dim, bool causal) {
  return 4.0 * heads * length_q * length_k * head_dim * (causal ? 0.5 : 1.0);
}

std::uint64_t blocks(const std::uint32_t size) { return std::max(size, 1U); }

std::optional<AttentionLaunch> flash(const wire::KernelOp& op, std::string_view name) {
  AttentionLaunch launch;
  const bool backward = name.find("flash_bwd") != std::string_view::npos;
  const auto at = name.find(backward ? "Flash_bwd_kernel_traits" : "Flash_fwd_kernel_traits");
  if (at == std::string_view::npos) return std::nullopt;
  const auto values = template_values(name, at);
  // forward: head size, rows, columns, warps, two flags; the base repeats four; then dropout, causal, ...
  // backward: head size, rows, columns, warps, three layouts, two flags; the base repeats four; then dropout, causal,
  // ...
  if (values.size() < (backward ? 9U : 6U)) return std::nullopt;
  launch.head_dim = static_cast<std::uint32_t>(std::clamp<std::int64_t>(values[0], 8, 512));
  const std::uint64_t rows = static_cast<std::uint64_t>(std::clamp<std::int64_t>(values[1], 1, 1024));
  const std::uint64_t columns = static_cast<std::uint64_t>(std::clamp<std::int64_t>(values[2], 1, 1024));
  launch.length_q = blocks(op.grid[0]) * rows;
  launch.heads = blocks(op.grid[1]) * blocks(op.grid[2]);
  const auto flag = [&values](std::size_t i) { return i < values.size() && values[i] != 0; };
  if (name.find("splitkv_combine") != std::string_view::npos) {
    launch.part = AttentionLaunch::Part::kCombine;
    launch.length_q = blocks(op.grid[0]) * 16;
    launch.heads = 1;
  } else if (name.find("flash_fwd_splitkv") != std::string_view::npos) {
    launch.causal = flag(10);
    if (flag(16)) launch.heads = blocks(op.grid[2]);  // split: the grid is rows, splits, batch x heads
  } else if (!backward) {
    launch.causal = flag(11);
  } else if (name.find("dot_do_o") != std::string_view::npos) {
    launch.part = AttentionLaunch::Part::kBackwardDot;
  } else if (name.find("convert_d") != std::string_view::npos) {
    launch.part = AttentionLaunch::Part::kBackwardConvert;
  } else {
    launch.part = AttentionLaunch::Part::kBackward;
    launch.causal = flag(14);
    launch.length_q = blocks(op.grid[0]) * columns;  // one block a column block
  }
  launch.length_k = launch.length_q;
  return launch;
}

// fmha_cutlassF_bf16_aligned_64x128_rf_sm80, fmha_cutlassB_bf16_aligned_64x64_k128_sm80
std::optional<AttentionLaunch> memory_efficient(const wire::KernelOp& op, std::string_view name) {
  const auto at = name.find("fmha_cutlass");
  if (at == std::string_view::npos || at + 13 >= name.size()) return std::nullopt;
  AttentionLaunch launch;
  launch.memory_efficient = true;
  const bool backward = name[at + 12] == 'B';
  launch.part = backward ? AttentionLaunch::Part::kBackward : AttentionLaunch::Part::kForward;
  auto number_at = [&name](std::size_t i) {
    std::uint64_t value = 0;
    for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && value < 100000; ++i) {
      value = value * 10 + static_cast<std::uint64_t>(name[i] - '0');
    }
    return value;
  };
  const auto tile = name.find("aligned_", at);
  if (tile == std::string_view::npos) return std::nullopt;
  const std::uint64_t rows = std::clamp<std::uint64_t>(number_at(tile + 8), 1, 1024);
  const auto by = name.find('x', tile);
  const std::uint64_t columns =
      by == std::string_view::npos ? 64 : std::clamp<std::uint64_t>(number_at(by + 1), 1, 1024);
  const bool narrow = name.find("_f32_", at) == std::string_view::npos;
  std::uint64_t head_dim = columns;
  if (backward) {
    const auto k = name.find("_k", tile);
    if (k != std::string_view::npos) head_dim = number_at(k + 2);
  } else if (name.find("_gmem_", at) != std::string_view::npos) {
    head_dim = 256;
  }
  launch.head_dim = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(head_dim, 32, 256));
  launch.heads = blocks(op.grid[1]) * blocks(op.grid[2]);
  launch.length_q = blocks(op.grid[0]) * (backward ? columns : rows);
  if (backward && op.op_input_bytes != 0) {
    // gradient, query, key, value and output, each heads x length x head size: the grid only counts key splits
    const std::uint64_t row_bytes = launch.heads * launch.head_dim * (narrow ? 2 : 4) * 5;
    launch.length_q = std::max<std::uint64_t>(1, op.op_input_bytes / std::max<std::uint64_t>(1, row_bytes));
    launch.shape_from_geometry = false;
  }
  launch.length_k = launch.length_q;
  return launch;
}

}  // namespace

std::optional<AttentionLaunch> recognise_attention(const wire::KernelOp& op, std::string_view name) {
  if (name.find("flash_") != std::string_view::npos) return flash(op, name);
  return memory_efficient(op, name);
}

AttentionModel::AttentionModel(const GpuParameters& gpu, AttentionTable table, const MemoryBoundModel& memory)
    : gpu_(gpu), table_(std::move(table)), memory_(memory) {
  // The stack's time for the smallest shapes is mostly not the kernel (about 11 us); take that share off everywhere.
  for (auto& [head_dim, grid] : table_.grids) {
    std::uint64_t shortest = ~0ULL;
    for (std::uint64_t time : grid.ns) {
      if (time != 0) shortest = std::min(shortest, time);
    }
    const std::uint64_t keep = static_cast<std::uint64_t>(kTableFloorNs);
    if (shortest == ~0ULL || shortest <= keep) continue;
    for (std::uint64_t& time : grid.ns) {
      if (time != 0) time -= shortest - keep;
    }
  }
}

double AttentionModel::table_ns(std::uint32_t head_dim, std::uint64_t length, std::uint64_t heads, bool& inside) const {
  if (table_.grids.empty()) {
    inside = false;
    return kTableFloorNs + 1e9 *
                               forward_flops(static_cast<double>(heads), static_cast<double>(length),
                                             static_cast<double>(length), head_dim, true) /
                               kFallbackFlops;
  }
  // The next head size that was measured, scaled by the work.
  auto found = table_.grids.lower_bound(head_dim);
  if (found == table_.grids.end()) --found;
  const AttentionGrid& grid = found->second;
  const auto bound = [&](std::uint64_t s, std::uint64_t bh, double d) {
    return kTableFloorNs +
           1e9 * forward_flops(static_cast<double>(bh), static_cast<double>(s), static_cast<double>(s), d, true) /
               (2.0 * kFallbackFlops);
  };
  const AxisPosition ps = grid.length.find(length), ph = grid.heads.find(heads);
  double sum = 0.0, weight = 0.0;
  for (std::size_t corner = 0; corner < 4; ++corner) {
    const std::size_t i = ps.index + (corner & 1), j = ph.index + (corner >> 1);
    const double share =
        ((corner & 1) != 0 ? ps.weight : 1.0 - ps.weight) * ((corner >> 1) != 0 ? ph.weight : 1.0 - ph.weight);
    const std::uint64_t time = share > 0.0 ? grid.at(i, j) : 0;
    if (time == 0) continue;
    sum += share * log2_exact(static_cast<double>(time) / bound(grid.length.at(i), grid.heads.at(j), found->first));
    weight += share;
  }
  inside = ps.inside && ph.inside && weight > 0.0 && found->first == head_dim;
  if (weight == 0.0) {
    // Too large to be measured (length x heads): the longest row measured with those heads, or fewer, sets the speed.
    for (std::size_t i = ps.index + 2; i-- > 0 && weight == 0.0;) {
      for (std::size_t j = ph.index + 2; j-- > 0 && weight == 0.0;) {
        const std::uint64_t time = grid.at(i, j);
        if (time == 0) continue;
        sum = log2_exact(static_cast<double>(time) / bound(grid.length.at(i), grid.heads.at(j), found->first));
        weight = 1.0;
      }
    }
  }
  return bound(length, heads, head_dim) * exp2_exact(weight > 0.0 ? sum / weight : 0.0);
}

double AttentionModel::published_tflops(const char* direction, std::uint32_t head_dim, bool causal,
                                        std::uint64_t length) const {
  const std::uint32_t nearest = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  auto found = table_.published.find({direction, nearest, causal});
  if (found == table_.published.end()) found = table_.published.find({direction, 128, causal});
  if (found == table_.published.end()) return 0.0;
  const AttentionCurve& curve = found->second;
  const AxisPosition p = curve.length.find(length);
  return curve.tflops[p.index] * (1.0 - p.weight) + curve.tflops[p.index + 1] * p.weight;
}

// FlashAttention-2's forward: the table's time for this shape, times the ratio of FA2 to the table on the published
// line.
double AttentionModel::forward_ns(const AttentionLaunch& launch, bool& inside) const {
  const std::uint64_t length = std::max(launch.length_q, launch.length_k);
  double ns = table_ns(launch.head_dim, length, launch.heads, inside);
  if (launch.length_q != launch.length_k) {
    ns = kTableFloorNs +
         ns * static_cast<double>(std::min(launch.length_q, launch.length_k)) / static_cast<double>(length);
  }
  const std::uint64_t reference_length = std::clamp<std::uint64_t>(length, 512, 16384);
  const double reference_heads = kPublishedTokens / static_cast<double>(reference_length) * kPublishedHidden /
                                 static_cast<double>(launch.head_dim);
  const std::uint64_t heads = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(reference_heads + 0.5));
  const double published = published_tflops("fwd", launch.head_dim, launch.causal, reference_length);
  if (published > 0.0) {
    bool ignored = false;
    const double table = table_ns(launch.head_dim, reference_length, heads, ignored);  // causal
    const double flash2 = forward_flops(static_cast<double>(heads), static_cast<double>(reference_length),
                                        static_cast<double>(reference_length), launch.head_dim, launch.causal) /
                          (published * 1e3);  // ns
    ns *= flash2 / table;
  } else if (!launch.causal) {
    ns *= 2.0;
  }
  return ns;
}

// Time of the backward over the forward, on the published line.
double AttentionModel::backward_ratio(std::uint32_t head_dim, bool causal, std::uint64_t length) const {
  const std::uint32_t known = head_dim <= 64 ? 64 : 128;
  const std::uint64_t reference = std::clamp<std::uint64_t>(length, 512, 16384);
  const double forward = published_tflops("fwd", known, causal, reference);
  const double both = published_tflops("fwd_bwd", known, causal, reference);
  if (!(forward > 0.0) || !(both > 0.0)) return 2.8;
  return 3.5 * forward / both - 1.0;
}

Cost AttentionModel::cost(const AttentionLaunch& launch) const {
  const double heads = static_cast<double>(launch.heads), head_dim = launch.head_dim;
  const double rows = heads * static_cast<double>(launch.length_q);
  const double dot_bytes = rows * (4.0 * head_dim + 4.0 + 4.0 * head_dim);  // reads dO and O, clears the fp32 dQ
  const double convert_bytes = rows * 6.0 * head_dim;                       // fp32 dQ to bf16
  Cost cost;
  cost.source = Source::kAnalytical;
  cost.spread = 0.3;
  switch (launch.part) {
    case AttentionLaunch::Part::kBackwardDot:
      cost.duration_ns = to_ns(memory_.stream_ns(dot_bytes, gpu_.efficiency.vectorized));
      return cost;
    case AttentionLaunch::Part::kBackwardConvert:
      cost.duration_ns = to_ns(memory_.stream_ns(convert_bytes, gpu_.efficiency.vectorized));
      return cost;
    case AttentionLaunch::Part::kCombine:
      cost.duration_ns = to_ns(memory_.stream_ns(rows * 8.0 * head_dim, gpu_.efficiency.reduction));
      cost.spread = 0.5;
      return cost;
    case AttentionLaunch::Part::kForward:
    case AttentionLaunch::Part::kBackward:
      break;
  }
  bool inside = false;
  double ns = forward_ns(launch, inside);
  if (launch.part == AttentionLaunch::Part::kBackward) {
    ns *= backward_ratio(launch.head_dim, launch.causal, launch.length_q);
    if (!launch.memory_efficient) {
      // The published time holds all three kernels of the backward.
      const double others = 1e9 * (dot_bytes + convert_bytes) / (gpu_.hbm_bytes_per_s * gpu_.efficiency.vectorized);
      ns = std::max(ns - others, 0.7 * ns);
    }
  }
  if (launch.memory_efficient) ns /= gpu_.attention_efficient_ratio;
  cost.source = inside && !launch.memory_efficient ? Source::kInterpolated : Source::kAnalytical;
  cost.spread = launch.memory_efficient ? 0.5 : inside ? 0.15 : 0.3;
  if (gpu_.attention_sustained_factor != 1.0) {
    ns *= gpu_.attention_sustained_factor;
    if (cost.source == Source::kInterpolated) cost.source = Source::kCalibrated;
    cost.spread = std::max(cost.spread, 0.18);
  }
  cost.duration_ns = to_ns(ns);
  return cost;
}

}  // namespace phantora::cost
