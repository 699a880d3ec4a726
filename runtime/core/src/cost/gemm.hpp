// Matrix products: measured table, interpolated in log space; a roofline outside it.
#pragma once

#include <cstdint>

#include "cost.hpp"
#include "parameters.hpp"
#include "table.hpp"

namespace phantora::cost {

class GemmModel {
 public:
  GemmModel(const GpuParameters& gpu, GemmTable table) : gpu_(gpu), table_(std::move(table)) {}
  Cost cost(const wire::GemmOp& op) const;

 private:
  struct Shape {
    std::uint64_t m, n, k, batch;  // y[m,n] = x[m,k] W[n,k]^T
  };
  double roofline_ns(const Shape& shape, const wire::GemmOp& op) const;
  const GpuParameters& gpu_;
  GemmTable table_;
};

double bytes_per_element(wire::DataType type);

}  // namespace phantora::cost
