// The constants of the cost models, read once from the configuration (gpu.*, cluster.*, cost.*).
#pragma once

#include <cstdint>
#include <string>

namespace phantora::core {
class Config;
}

namespace phantora::cost {

struct Efficiency {  // share of the memory bandwidth that a family of kernels reaches
  double vectorized, casting, strided, reduction, norm, norm_backward, softmax, multi_tensor, gather, triton, unknown,
      memset, copy;
};

struct GpuParameters {
  double flops_bf16, flops_fp16, flops_fp8, flops_int8, flops_tf32, flops_fp32, flops_fp64;  // per second, dense
  double hbm_bytes_per_s;
  double gemm_sustained_factor, attention_sustained_factor;  // multiply a burst duration
  double gemm_roofline_efficiency, gemm_bandwidth_efficiency, gemm_floor_ns;
  double kernel_floor_ns;
  double random_elements_per_s;
  double attention_efficient_ratio;
  double sm_count;
  Efficiency efficiency;
};

struct ClusterParameters {
  std::uint32_t gpus_per_node, nics_per_node;
  double nvlink_bytes_per_s, nvlink_efficiency, p2p_latency_ns;
  double nic_bytes_per_s, nic_efficiency;
  double ring_busbw_limit, gather_busbw_limit;  // bytes a second
  double ring_base_ll_ns, ring_base_simple_ns, tree_base_ll_ns;
  double ring_hop_nvlink_ll_ns, ring_hop_nvlink_simple_ns, ring_hop_net_ll_ns, ring_hop_net_simple_ns;
  double tree_hop_nvlink_ll_ns, tree_hop_net_ll_ns, tree_hop_net_simple_ns;
  double pcie_bytes_per_s, pcie_pinned_efficiency, pcie_pageable_bytes_per_s, copy_latency_ns, host_memory_bytes_per_s;
};

struct Parameters {
  GpuParameters gpu;
  ClusterParameters cluster;
  std::string gemm_table, attention_table, nccl_table;  // paths; empty: no table, rooflines only
  std::uint64_t add_gemm_ns;                            // cost.add_ns.gemm: tests show that it changes the digest

  static Parameters from(const core::Config& config);
};

}  // namespace phantora::cost
