#include "gemm.hpp"

#include <algorithm>

#include "math.hpp"

namespace phantora::cost {
namespace {

using wire::DataType;

double peak_flops(const GpuParameters& gpu, const wire::GemmOp& op) {
  switch (op.type_a) {
    case DataType::kBfloat16:
      return gpu.flops_bf16;
    case DataType::kFloat16:
      return gpu.flops_fp16;
    case DataType::kFp8E4M3:
    case DataType::kFp8E5M2:
    case DataType::kFp4:
      return gpu.flops_fp8;
    case DataType::kInt8:
    case DataType::kUint8:
      return gpu.flops_int8;
    case DataType::kFloat64:
      return gpu.flops_fp64;
    case DataType::kComplex64:  // four real products
      return gpu.flops_fp32 / 4.0;
    case DataType::kComplex128:
      return gpu.flops_fp64 / 4.0;
    case DataType::kTf32:
      return gpu.flops_tf32;
    default:
      return op.compute == DataType::kTf32 ? gpu.flops_tf32 : gpu.flops_fp32;
  }
}

// The measured grid of this input type, or the one whose efficiency stands in for it.
const char* grid_name(DataType type, bool& own) {
  switch (type) {
    case DataType::kBfloat16:
    case DataType::kFloat16:  // same tensor-core rate and bytes
      own = true;
      return "bf16";
    case DataType::kFp8E4M3:
    case DataType::kFp8E5M2:
      own = true;
      return "fp8";
    default:
      own = false;
      return "bf16";
  }
}

}  // namespace

double bytes_per_element(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
    case DataType::kFp8E4M3:
    case DataType::kFp8E5M2:
      return 1.0;
    case DataType::kFp4:
      return 0.5;
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kInt16:
      return 2.0;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
    case DataType::kComplex64:
      return 8.0;
    case DataType::kComplex128:
      return 16.0;
    default:
      return 4.0;
  }
}

// The floor is a part of the sum: a smooth bound interpolates better than a maximum with a corner.
double GemmModel::roofline_ns(const Shape& s, const wire::GemmOp& op) const {
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  const double batch = static_cast<double>(s.batch);
  const double flops = 2.0 * m * n * k * batch;
  const double bytes = batch * (m * k * bytes_per_element(op.type_a) + n * k * bytes_per_element(op.type_b) +
                                m * n * bytes_per_element(op.type_c));
  const double compute = flops / (peak_flops(gpu_, op) * gpu_.gemm_roofline_efficiency);
  const double memory = bytes / (gpu_.hbm_bytes_per_s * gpu_.gemm_bandwidth_efficiency);
  return gpu_.gemm_floor_ns + 1e9 * std::max(compute, memory);
}

Cost GemmModel::cost(const wire::GemmOp& op) const {
  // cuBLAS is column-major: torch's y = x W^T arrives as C[m,n] with m = features, n = tokens. In row-major terms
  // y[n, m]. Only this layout (A transposed, B not) was measured; the others are costed alike.
  Shape shape{std::max(op.n, 1U), std::max(op.m, 1U), std::max(op.k, 1U), std::max(op.batch, 1U)};
  const double bound = roofline_ns(shape, op);
  bool own_grid = false;
  const auto found = table_.find(grid_name(op.type_a, own_grid));
  Cost result;
  double ns = bound;
  if (found == table_.end()) {
    result.source = Source::kAnalytical;
    result.spread = 0.25;
  } else {
    const GemmGrid& grid = found->second;
    // A batch fills the GPU as one product with more rows would.
    const std::uint64_t rows = shape.m * shape.batch;
    const AxisPosition pm = grid.m.find(rows), pn = grid.n.find(shape.n), pk = grid.k.find(shape.k);
    // Interpolates log(measured / roofline), so that the known scaling is taken out; outside the grid the ratio of
    // the nearest edge scales the roofline. Points not measured lend their weight to the others.
    wire::GemmOp measured = op;
    measured.type_a = measured.type_b = own_grid ? op.type_a : DataType::kBfloat16;
    measured.type_c = DataType::kBfloat16;
    double sum = 0.0, weight = 0.0;
    for (std::size_t corner = 0; corner < 8; ++corner) {
      const std::size_t i = pm.index + (corner & 1), j = pn.index + (corner >> 1 & 1), l = pk.index + (corner >> 2);
      const double share = ((corner & 1) != 0 ? pm.weight : 1.0 - pm.weight) *
                           ((corner >> 1 & 1) != 0 ? pn.weight : 1.0 - pn.weight) *
                           ((corner >> 2) != 0 ? pk.weight : 1.0 - pk.weight);
      const std::uint32_t time = share > 0.0 ? grid.at(i, j, l) : 0;
      if (time == 0) continue;
      const Shape point{grid.m.at(i), grid.n.at(j), grid.k.at(l), 1};
      sum += share * log2_exact(static_cast<double>(time) / roofline_ns(point, measured));
      weight += share;
    }
    const bool inside = pm.inside && pn.inside && pk.inside && weight > 0.0;
    if (weight > 0.0) ns = bound * exp2_exact(sum / weight);
    if (!inside || !own_grid || shape.batch > 1) {
      result.source = Source::kAnalytical;
      result.spread = 0.25;
    } else if (pm.exact && pn.exact && pk.exact) {
      result.source = Source::kMeasured;
      result.spread = 0.08;  // median spread between stacks
    } else {
      result.source = Source::kInterpolated;
      result.spread = 0.12;
    }
  }
  if (gpu_.gemm_sustained_factor != 1.0) {
    ns *= gpu_.gemm_sustained_factor;
    if (result.source != Source::kAnalytical) result.source = Source::kCalibrated;
    result.spread = std::max(result.spread, 0.18);
  }
  result.duration_ns = to_ns(ns);
  return result;
}

}  // namespace phantora::cost
