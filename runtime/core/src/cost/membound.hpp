// Kernels bound by memory bandwidth: bytes moved over the share of the bandwidth that the family reaches.
#pragma once

#include <string_view>

#include "cost.hpp"
#include "kernel_name.hpp"
#include "parameters.hpp"

namespace phantora::cost {

class MemoryBoundModel {
 public:
  explicit MemoryBoundModel(const GpuParameters& gpu) : gpu_(gpu) {}
  Cost cost(const wire::KernelOp& op, const KernelName& name, std::string_view op_name) const;
  // A stream of `bytes` at `efficiency` of the memory bandwidth, with the launch's floor.
  double stream_ns(double bytes, double efficiency) const;

 private:
  const GpuParameters& gpu_;
};

}  // namespace phantora::cost
