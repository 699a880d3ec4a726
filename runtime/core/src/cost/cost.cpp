#include "cost.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "attention.hpp"
#include "collective.hpp"
#include "gemm.hpp"
#include "kernel_name.hpp"
#include "math.hpp"
#include "membound.hpp"
#include "parameters.hpp"

namespace phantora::cost {
namespace {

// Two launches with the same key cost the same: all fields that a model reads.
struct KernelKey {
  std::uint64_t name, op, elements, input, output;
  std::uint32_t grid[3], block[3];
  bool operator==(const KernelKey& other) const = default;
};
struct GemmKey {
  std::uint64_t mn, k_batch, types;
  bool operator==(const GemmKey& other) const = default;
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 32);
}
struct KeyHash {
  std::size_t operator()(const KernelKey& key) const {
    std::uint64_t hash = mix(mix(mix(mix(key.name, key.op), key.elements), key.input), key.output);
    for (std::uint32_t size : key.grid) hash = mix(hash, size);
    for (std::uint32_t size : key.block) hash = mix(hash, size);
    return hash;
  }
  std::size_t operator()(const GemmKey& key) const { return mix(mix(key.mn, key.k_batch), key.types); }
};

// Names are the ranks' own: a run that makes endless new shapes must not eat the core's memory.
constexpr std::size_t kCacheLimit = 1U << 20;

}  // namespace

const char* source_name(Source source) {
  switch (source) {
    case Source::kMeasured:
      return "measured";
    case Source::kInterpolated:
      return "interpolated";
    case Source::kAnalytical:
      return "analytical";
    case Source::kCalibrated:
      return "calibrated";
    case Source::kUnknown:
      break;
  }
  return "unknown";
}

struct CostModel::Impl {
  explicit Impl(const core::Config& config)
      : parameters(Parameters::from(config)),
        gemm(parameters.gpu, load_gemm_table(parameters.gemm_table)),
        memory(parameters.gpu),
        attention(parameters.gpu, load_attention_table(parameters.attention_table), memory),
        collective(parameters.cluster, parameters.gpu, load_nccl_table(parameters.nccl_table)) {}

  Parameters parameters;
  GemmModel gemm;
  MemoryBoundModel memory;
  AttentionModel attention;
  CollectiveModel collective;
  std::unordered_map<KernelKey, Cost, KeyHash> kernels;
  std::unordered_map<GemmKey, Cost, KeyHash> gemms;
  std::unordered_map<std::uint64_t, KernelName> names;
};

CostModel::CostModel(const core::Config& config) : impl_(std::make_unique<Impl>(config)) {}
CostModel::~CostModel() = default;
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;

Cost CostModel::kernel(const wire::KernelOp& op, std::string_view mangled_name, std::string_view op_name) {
  KernelKey key{op.name, op.op, op.elements, op.op_input_bytes, op.op_output_bytes, {}, {}};
  std::copy(std::begin(op.grid), std::end(op.grid), key.grid);
  std::copy(std::begin(op.block), std::end(op.block), key.block);
  if (const auto found = impl_->kernels.find(key); found != impl_->kernels.end()) return found->second;
  if (impl_->names.size() >= kCacheLimit) impl_->names.clear();
  auto [at, added] = impl_->names.try_emplace(op.name);
  if (added) at->second = parse_kernel_name(mangled_name);
  Cost cost;
  std::optional<AttentionLaunch> attention;
  if (at->second.family == Family::kAttention) attention = recognise_attention(op, mangled_name);
  cost = attention ? impl_->attention.cost(*attention) : impl_->memory.cost(op, at->second, op_name);
  if (impl_->kernels.size() >= kCacheLimit) impl_->kernels.clear();
  impl_->kernels.emplace(key, cost);
  return cost;
}

Cost CostModel::gemm(const wire::GemmOp& op) {
  const GemmKey key{static_cast<std::uint64_t>(op.m) << 32 | op.n, static_cast<std::uint64_t>(op.k) << 32 | op.batch,
                    static_cast<std::uint64_t>(op.type_a) | static_cast<std::uint64_t>(op.type_b) << 8 |
                        static_cast<std::uint64_t>(op.type_c) << 16 | static_cast<std::uint64_t>(op.compute) << 24};
  const auto found = impl_->gemms.find(key);
  if (found != impl_->gemms.end()) return found->second;
  Cost cost = impl_->gemm.cost(op);
  cost.duration_ns += impl_->parameters.add_gemm_ns;
  if (impl_->gemms.size() >= kCacheLimit) impl_->gemms.clear();
  impl_->gemms.emplace(key, cost);
  return cost;
}

Cost CostModel::copy(const wire::CopyOp& op) {
  const ClusterParameters& c = impl_->parameters.cluster;
  const GpuParameters& g = impl_->parameters.gpu;
  const double bytes = static_cast<double>(op.bytes);
  double ns = 0.0, spread = 0.3;
  switch (op.kind) {
    case wire::CopyKind::kHostToDevice:
    case wire::CopyKind::kDeviceToHost:
      ns = c.copy_latency_ns +
           1e9 * bytes / (op.pinned != 0 ? c.pcie_bytes_per_s * c.pcie_pinned_efficiency : c.pcie_pageable_bytes_per_s);
      break;
    case wire::CopyKind::kDeviceToDevice:
      ns = g.kernel_floor_ns + 2e9 * bytes / (g.hbm_bytes_per_s * g.efficiency.copy);
      break;
    case wire::CopyKind::kPeer:
      ns = c.p2p_latency_ns + 1e9 * bytes / (c.nvlink_bytes_per_s * c.nvlink_efficiency);
      break;
    case wire::CopyKind::kHostToHost:
      ns = 1e9 * bytes / c.host_memory_bytes_per_s;
      break;
    default:
      ns = c.copy_latency_ns + 1e9 * bytes / c.pcie_pageable_bytes_per_s;
      spread = 1.0;
      break;
  }
  return {to_ns(ns), Source::kAnalytical, spread};
}

Cost CostModel::memset(std::uint64_t bytes) {
  return {to_ns(impl_->memory.stream_ns(static_cast<double>(bytes), impl_->parameters.gpu.efficiency.memset)),
          Source::kAnalytical, 0.3};
}

Cost CostModel::collective(const wire::CollectiveOp& op, const std::vector<std::uint32_t>& member_world_ranks,
                           std::uint32_t self_world_rank) {
  return impl_->collective.cost(op, member_world_ranks, self_world_rank);
}

}  // namespace phantora::cost
