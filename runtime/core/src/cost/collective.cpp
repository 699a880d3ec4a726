#include "collective.hpp"

#include <algorithm>
#include <map>

#include "gemm.hpp"
#include "math.hpp"

namespace phantora::cost {
namespace {

using Kind = wire::CollectiveKind;

constexpr double kNetLlIntraFactor = 1.8;  // NCCL's tuner: LL hops on NVLink are that much slower between nodes
constexpr double kLlBandwidth = 0.25;      // NCCL's tuner: share of the bus bandwidth that LL reaches
constexpr double kTreeBandwidth = 0.9;     // NCCL's tuner

// The whole message: result of an all_gather, input of a reduce_scatter or all-to-all, else the buffer itself. `count`
// is what the caller passed to NCCL, which for those three is one rank's part.
double message_bytes(const wire::CollectiveOp& op, std::size_t ranks) {
  const double element = bytes_per_element(op.type);
  double bytes = op.count != 0 ? static_cast<double>(op.count) * element : static_cast<double>(op.bytes);
  if (op.kind == Kind::kAllGather || op.kind == Kind::kReduceScatter || op.kind == Kind::kAllToAll ||
      op.kind == Kind::kGather || op.kind == Kind::kScatter) {
    bytes *= static_cast<double>(ranks);
  }
  return op.kind == Kind::kBarrier ? 4.0 : std::max(bytes, 1.0);
}

}  // namespace

CollectiveModel::Shape CollectiveModel::shape_of(const std::vector<std::uint32_t>& members) const {
  std::map<std::uint32_t, std::uint32_t> nodes;
  for (std::uint32_t rank : members) ++nodes[rank / cluster_.gpus_per_node];
  Shape shape;
  shape.ranks = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(members.size()));
  shape.nodes = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(nodes.size()));
  for (const auto& [node, count] : nodes) shape.per_node = std::max(shape.per_node, count);
  return shape;
}

// Log-log between the sizes; below the smallest its time; above the largest its bandwidth.
double CollectiveModel::curve_ns(const NcclCurve& curve, double bytes, bool& inside, bool& exact) const {
  const std::uint64_t size = static_cast<std::uint64_t>(std::min(bytes, 9e18));
  const AxisPosition p = curve.bytes.find(std::max<std::uint64_t>(size, 1));
  inside = p.inside;
  exact = p.exact;
  if (!p.inside && p.weight == 0.0) return static_cast<double>(curve.ns.front());
  if (!p.inside) return static_cast<double>(curve.ns.back()) * bytes / static_cast<double>(curve.bytes.values().back());
  const double low = log2_exact(static_cast<double>(curve.ns[p.index]));
  const double high = log2_exact(static_cast<double>(curve.ns[p.index + 1]));
  return exp2_exact(low + (high - low) * p.weight);
}

Cost CollectiveModel::inside_node(const char* op, std::uint32_t ranks, double bytes) const {
  Cost cost;
  // The nearest measured numbers of GPUs, below and above.
  const NcclCurve *low = nullptr, *high = nullptr;
  std::uint32_t low_ranks = 0, high_ranks = 0;
  for (const auto& [key, curve] : table_) {
    if (key.first != op) continue;
    if (key.second <= ranks && key.second > low_ranks) {
      low = &curve;
      low_ranks = key.second;
    }
    if (key.second >= ranks && (high == nullptr || key.second < high_ranks)) {
      high = &curve;
      high_ranks = key.second;
    }
  }
  if (low == nullptr && high == nullptr) {
    const double steps = static_cast<double>(ranks - 1);
    cost.duration_ns = to_ns(cluster_.p2p_latency_ns + steps * cluster_.ring_hop_nvlink_ll_ns +
                             1e9 * 2.0 * bytes / cluster_.gather_busbw_limit);
    cost.source = Source::kAnalytical;
    cost.spread = 0.5;
    return cost;
  }
  if (low == nullptr) low = high, low_ranks = high_ranks;
  if (high == nullptr) high = low, high_ranks = low_ranks;
  bool inside = false, exact = false;
  double ns = curve_ns(*low, bytes, inside, exact);
  if (low_ranks != high_ranks) {
    bool other_inside = false, other_exact = false;
    const double other = curve_ns(*high, bytes, other_inside, other_exact);
    const double weight =
        (log2_exact(ranks) - log2_exact(low_ranks)) / (log2_exact(high_ranks) - log2_exact(low_ranks));
    const double a = log2_exact(ns);
    ns = exp2_exact(a + (log2_exact(other) - a) * weight);
    exact = false;
    inside = inside && other_inside;
  }
  cost.duration_ns = to_ns(ns);
  const bool measured_ranks = ranks == low_ranks;
  cost.source = !inside ? Source::kAnalytical : exact && measured_ranks ? Source::kMeasured : Source::kInterpolated;
  cost.spread = !inside ? 0.2 : measured_ranks ? 0.1 : 0.2;
  return cost;
}

// Rail-optimised: every member of a node drives its own NIC, and the ring through them is as wide as their sum.
double CollectiveModel::bus_bandwidth(const Shape& shape, double limit) const {
  const double nics = std::min(shape.per_node, cluster_.nics_per_node);
  return std::min(limit, nics * cluster_.nic_bytes_per_s * cluster_.nic_efficiency);
}

double CollectiveModel::ring_ns(const Shape& shape, double steps, double net_steps, double bus_bytes,
                                double busbw) const {
  (void)shape;
  const double near = std::max(steps - net_steps, 0.0);
  const double ll = cluster_.ring_base_ll_ns + near * cluster_.ring_hop_nvlink_ll_ns * kNetLlIntraFactor +
                    net_steps * cluster_.ring_hop_net_ll_ns + 1e9 * bus_bytes / (busbw * kLlBandwidth);
  const double simple = cluster_.ring_base_simple_ns + near * cluster_.ring_hop_nvlink_simple_ns +
                        net_steps * cluster_.ring_hop_net_simple_ns + 1e9 * bus_bytes / busbw;
  return std::min(ll, simple);
}

double CollectiveModel::tree_ns(const Shape& shape, double bytes, double busbw) const {
  double depth = 0.0;
  for (std::uint32_t nodes = 1; nodes < shape.nodes; nodes *= 2) depth += 1.0;
  const double near = static_cast<double>(shape.per_node - 1);
  const double ll =
      cluster_.tree_base_ll_ns +
      2.0 * (near * cluster_.tree_hop_nvlink_ll_ns * kNetLlIntraFactor + depth * cluster_.tree_hop_net_ll_ns) +
      1e9 * 2.0 * bytes / (busbw * kLlBandwidth);
  const double simple = cluster_.ring_base_simple_ns +
                        2.0 * (near * cluster_.ring_hop_nvlink_simple_ns + depth * cluster_.tree_hop_net_simple_ns) +
                        1e9 * 2.0 * bytes / (busbw * kTreeBandwidth);
  return std::min(ll, simple);
}

Cost CollectiveModel::across_nodes(const wire::CollectiveOp& op, const Shape& shape, double bytes) const {
  const double ranks = shape.ranks, nodes = shape.nodes;
  const double share = (ranks - 1.0) / ranks;  // of the message that each link of a ring carries
  const double gather_bw = bus_bandwidth(shape, cluster_.gather_busbw_limit);
  double ns = 0.0;
  switch (op.kind) {
    case Kind::kAllReduce:
    case Kind::kBarrier: {
      const double busbw = bus_bandwidth(shape, cluster_.ring_busbw_limit);
      ns = std::min(ring_ns(shape, 2.0 * (ranks - 1.0), 2.0 * (nodes - 1.0), 2.0 * share * bytes, busbw),
                    tree_ns(shape, bytes, busbw));
      break;
    }
    case Kind::kAllGather:
    case Kind::kReduceScatter:
      ns = ring_ns(shape, ranks - 1.0, nodes - 1.0, share * bytes, gather_bw);
      break;
    case Kind::kBroadcast:
    case Kind::kReduce:
    case Kind::kGather:
    case Kind::kScatter:
      ns = ring_ns(shape, ranks, nodes, bytes, gather_bw);
      break;
    case Kind::kAllToAll: {
      // Each rank sends one part to every other: those on other nodes go through its NIC, the others over NVLink.
      const double part = bytes / ranks;
      const double far = part * std::max(ranks - static_cast<double>(shape.per_node), 1.0);
      const double near = part * static_cast<double>(shape.per_node - 1);
      const double nics =
          std::min(1.0, static_cast<double>(cluster_.nics_per_node) / static_cast<double>(shape.per_node));
      const double net = 1e9 * far / (cluster_.nic_bytes_per_s * cluster_.nic_efficiency * nics);
      const double link = 1e9 * near / (cluster_.nvlink_bytes_per_s * cluster_.nvlink_efficiency);
      ns = cluster_.ring_base_simple_ns + cluster_.ring_hop_net_simple_ns + std::max(net, link);
      break;
    }
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
  Cost cost;
  cost.duration_ns = to_ns(ns);
  cost.source = Source::kAnalytical;
  cost.spread = 0.4;
  return cost;
}

Cost CollectiveModel::point_to_point(std::uint32_t from, std::uint32_t to, double bytes) const {
  Cost cost;
  cost.source = Source::kAnalytical;
  cost.spread = 0.3;
  if (from == to) {
    cost.duration_ns = to_ns(gpu_.kernel_floor_ns + 2e9 * bytes / (gpu_.hbm_bytes_per_s * gpu_.efficiency.copy));
  } else if (from / cluster_.gpus_per_node == to / cluster_.gpus_per_node) {
    cost.duration_ns =
        to_ns(cluster_.p2p_latency_ns + 1e9 * bytes / (cluster_.nvlink_bytes_per_s * cluster_.nvlink_efficiency));
  } else {
    cost.duration_ns = to_ns(cluster_.p2p_latency_ns + cluster_.ring_hop_net_simple_ns +
                             1e9 * bytes / (cluster_.nic_bytes_per_s * cluster_.nic_efficiency));
  }
  return cost;
}

Cost CollectiveModel::cost(const wire::CollectiveOp& op, const std::vector<std::uint32_t>& members,
                           std::uint32_t self) const {
  const double bytes = message_bytes(op, std::max<std::size_t>(members.size(), 1));
  if (op.kind == Kind::kSend || op.kind == Kind::kRecv) {
    const bool known = op.peer >= 0 && static_cast<std::size_t>(op.peer) < members.size();
    return point_to_point(self, known ? members[static_cast<std::size_t>(op.peer)] : self, bytes);
  }
  const Shape shape = shape_of(members);
  if (shape.ranks == 1) {
    Cost cost;  // a copy on the device, or nothing to do
    cost.duration_ns = to_ns(gpu_.kernel_floor_ns + 2e9 * bytes / (gpu_.hbm_bytes_per_s * gpu_.efficiency.copy));
    cost.source = Source::kAnalytical;
    cost.spread = 0.3;
    return cost;
  }
  if (shape.nodes > 1) return across_nodes(op, shape, bytes);
  switch (op.kind) {
    case Kind::kAllReduce:
    case Kind::kBarrier:
      return inside_node("all_reduce", shape.ranks, bytes);
    case Kind::kAllGather:
      return inside_node("all_gather", shape.ranks, bytes);
    case Kind::kReduceScatter:
      return inside_node("reduce_scatter", shape.ranks, bytes);
    case Kind::kAllToAll:
      return inside_node("alltoall", shape.ranks, bytes);
    default: {
      // Not measured: the links carry the whole message, where an all_gather's carry (n-1)/n of it.
      const double whole = bytes * static_cast<double>(shape.ranks) / static_cast<double>(shape.ranks - 1);
      const bool reduces = op.kind == Kind::kReduce;
      Cost cost = inside_node(reduces ? "reduce_scatter" : "all_gather", shape.ranks, whole);
      cost.source = Source::kAnalytical;
      cost.spread = 0.3;
      return cost;
    }
  }
}

}  // namespace phantora::cost
