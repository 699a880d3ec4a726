// NCCL collectives. Inside a node: measured curves. Across nodes: NCCL's own latency + bandwidth model (its tuner) with
// the cluster file's numbers.
#pragma once

#include <vector>

#include "cost.hpp"
#include "parameters.hpp"
#include "table.hpp"

namespace phantora::cost {

class CollectiveModel {
 public:
  CollectiveModel(const ClusterParameters& cluster, const GpuParameters& gpu, NcclTable table)
      : cluster_(cluster), gpu_(gpu), table_(std::move(table)) {}
  Cost cost(const wire::CollectiveOp& op, const std::vector<std::uint32_t>& members, std::uint32_t self) const;

 private:
  struct Shape {
    std::uint32_t ranks = 1, nodes = 1, per_node = 1;  // per_node: most members on one node
  };
  Shape shape_of(const std::vector<std::uint32_t>& members) const;
  Cost inside_node(const char* op, std::uint32_t ranks, double bytes) const;
  double curve_ns(const NcclCurve& curve, double bytes, bool& inside, bool& exact) const;
  // steps and net_steps: hops of the ring, and those of them between nodes; bus_bytes: what each link carries.
  double ring_ns(const Shape& shape, double steps, double net_steps, double bus_bytes, double busbw) const;
  double tree_ns(const Shape& shape, double bytes, double busbw) const;
  double bus_bandwidth(const Shape& shape, double limit) const;
  Cost across_nodes(const wire::CollectiveOp& op, const Shape& shape, double bytes) const;
  Cost point_to_point(std::uint32_t from, std::uint32_t to, double bytes) const;

  const ClusterParameters& cluster_;
  const GpuParameters& gpu_;
  NcclTable table_;
};

}  // namespace phantora::cost
