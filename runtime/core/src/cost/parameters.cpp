#include "parameters.hpp"

#include "../config.hpp"

namespace phantora::cost {
namespace {

double positive(const core::Config& config, const std::string& key) {
  const double value = config.get_f64(key, 0.0);
  if (!(value > 0.0)) {
    throw core::ConfigError("configuration: `" + key + "` is missing or not positive; it comes from the profile");
  }
  return value;
}

}  // namespace

Parameters Parameters::from(const core::Config& config) {
  Parameters p{};
  auto gpu = [&config](const char* key) { return positive(config, std::string("gpu.") + key); };
  auto cluster = [&config](const char* key) { return positive(config, std::string("cluster.") + key); };
  GpuParameters& g = p.gpu;
  g.flops_bf16 = gpu("peak_flops_bf16");
  g.flops_fp16 = gpu("peak_flops_fp16");
  g.flops_fp8 = gpu("peak_flops_fp8");
  g.flops_int8 = gpu("peak_flops_int8");
  g.flops_tf32 = gpu("peak_flops_tf32");
  g.flops_fp32 = gpu("peak_flops_fp32");
  g.flops_fp64 = gpu("peak_flops_fp64");
  g.hbm_bytes_per_s = gpu("hbm_bytes_per_s");
  g.gemm_sustained_factor = gpu("gemm_sustained_factor");
  g.attention_sustained_factor = gpu("attention_sustained_factor");
  g.gemm_roofline_efficiency = gpu("gemm_roofline_efficiency");
  g.gemm_bandwidth_efficiency = gpu("gemm_bandwidth_efficiency");
  g.gemm_floor_ns = gpu("gemm_floor_ns");
  g.kernel_floor_ns = gpu("kernel_floor_ns");
  g.random_elements_per_s = gpu("random_elements_per_s");
  g.attention_efficient_ratio = gpu("attention_efficient_ratio");
  g.sm_count = gpu("sm_count");
  Efficiency& e = g.efficiency;
  e.vectorized = gpu("efficiency_vectorized");
  e.casting = gpu("efficiency_casting");
  e.strided = gpu("efficiency_strided");
  e.reduction = gpu("efficiency_reduction");
  e.norm = gpu("efficiency_norm");
  e.norm_backward = gpu("efficiency_norm_backward");
  e.softmax = gpu("efficiency_softmax");
  e.multi_tensor = gpu("efficiency_multi_tensor");
  e.gather = gpu("efficiency_gather");
  e.triton = gpu("efficiency_triton");
  e.unknown = gpu("efficiency_unknown");
  e.memset = gpu("efficiency_memset");
  e.copy = gpu("efficiency_copy");

  ClusterParameters& c = p.cluster;
  // The run's own number wins over the cluster profile's (--gpus-per-node).
  c.gpus_per_node =
      static_cast<std::uint32_t>(config.get_u64("gpus_per_node", config.get_u64("cluster.gpus_per_node", 8)));
  if (c.gpus_per_node == 0) throw core::ConfigError("configuration: `gpus_per_node` is 0");
  c.nics_per_node = static_cast<std::uint32_t>(cluster("nics_per_node"));
  c.nvlink_bytes_per_s = cluster("nvlink_bytes_per_s");
  c.nvlink_efficiency = cluster("nvlink_efficiency");
  c.p2p_latency_ns = cluster("p2p_latency_ns");
  c.nic_bytes_per_s = cluster("nic_bytes_per_s");
  c.nic_efficiency = cluster("nic_efficiency");
  c.ring_busbw_limit = cluster("ring_busbw_limit_bytes_per_s");
  c.gather_busbw_limit = cluster("gather_busbw_limit_bytes_per_s");
  c.ring_base_ll_ns = cluster("ring_base_ll_ns");
  c.ring_base_simple_ns = cluster("ring_base_simple_ns");
  c.tree_base_ll_ns = cluster("tree_base_ll_ns");
  c.ring_hop_nvlink_ll_ns = cluster("ring_hop_nvlink_ll_ns");
  c.ring_hop_nvlink_simple_ns = cluster("ring_hop_nvlink_simple_ns");
  c.ring_hop_net_ll_ns = cluster("ring_hop_net_ll_ns");
  c.ring_hop_net_simple_ns = cluster("ring_hop_net_simple_ns");
  c.tree_hop_nvlink_ll_ns = cluster("tree_hop_nvlink_ll_ns");
  c.tree_hop_net_ll_ns = cluster("tree_hop_net_ll_ns");
  c.tree_hop_net_simple_ns = cluster("tree_hop_net_simple_ns");
  c.pcie_bytes_per_s = cluster("pcie_bytes_per_s");
  c.pcie_pinned_efficiency = cluster("pcie_pinned_efficiency");
  c.pcie_pageable_bytes_per_s = cluster("pcie_pageable_bytes_per_s");
  c.copy_latency_ns = cluster("copy_latency_ns");
  c.host_memory_bytes_per_s = cluster("host_memory_bytes_per_s");

  p.gemm_table = config.get("table.gemm", "");
  p.attention_table = config.get("table.attention", "");
  p.nccl_table = config.get("table.nccl", "");
  p.add_gemm_ns = config.get_u64("cost.add_ns.gemm", 0);
  return p;
}

}  // namespace phantora::cost
