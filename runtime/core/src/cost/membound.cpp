#include "membound.hpp"

#include <algorithm>

#include "math.hpp"

namespace phantora::cost {
namespace {

// The most that a thread of a sort or scan handles (a radix sort's: 23 items of 16 bytes). An op of many launches, such
// as the backward of an embedding, sorts its indices in launches that would else be charged with all its gradients.
constexpr double kBytesPerThread = 512.0;

double total_threads(const wire::KernelOp& op) {
  double threads = 1.0;
  for (std::uint32_t size : op.grid) threads *= static_cast<double>(std::max(size, 1U));
  for (std::uint32_t size : op.block) threads *= static_cast<double>(std::max(size, 1U));
  return threads;
}

double total_blocks(const wire::KernelOp& op) {
  double blocks = 1.0;
  for (std::uint32_t size : op.grid) blocks *= static_cast<double>(std::max(size, 1U));
  return blocks;
}

// What a launch moves, and how far that can be trusted.
struct Traffic {
  double bytes = 0.0;
  double spread = 0.3;
  bool from_geometry = false;
};

// `both`: the op's inputs and outputs are both known, so that their sum bounds what one launch of it moves.
Traffic elementwise_traffic(const wire::KernelOp& op, const KernelName& name, double op_bytes, bool both) {
  Traffic traffic;
  const double blocks = total_blocks(op);
  double elements = static_cast<double>(op.elements);
  if (elements == 0.0) {
    if (op_bytes > 0.0) return {op_bytes, 0.3, false};
    elements = blocks * (name.elements_per_block != 0 ? name.elements_per_block : 512.0);
    traffic.from_geometry = true;
    traffic.spread = 0.5;
  } else if (name.elements_per_block != 0) {
    // The count comes from the kernel's arguments; never believe more than the grid can cover.
    elements = std::min(elements, blocks * std::max(64.0 * 1024.0, static_cast<double>(name.elements_per_block)));
  }
  const double operands = name.operands != 0 ? name.operands : 2.0;
  if (name.family == Family::kCasting) {
    // One side is usually half the size of the other; the op's own bytes say it exactly. In-place ops and copies list
    // their destination twice.
    traffic.bytes = elements * operands * 3.0;
    if (both) {
      const bool listed_twice = op_bytes > elements * operands * 4.0;
      traffic.bytes = listed_twice ? op_bytes * operands / (operands + 1.0) : op_bytes;
    }
  } else {
    traffic.bytes = elements * operands * name.element_bytes;
    // Broadcast operands are read once; and a wrongly guessed element size shows here.
    if (both) traffic.bytes = std::min(traffic.bytes, op_bytes);
  }
  return traffic;
}

}  // namespace

double MemoryBoundModel::stream_ns(double bytes, double efficiency) const {
  return gpu_.kernel_floor_ns + 1e9 * bytes / (gpu_.hbm_bytes_per_s * efficiency);
}

Cost MemoryBoundModel::cost(const wire::KernelOp& op, const KernelName& name, std::string_view op_name) const {
  const Efficiency& e = gpu_.efficiency;
  const double in = static_cast<double>(op.op_input_bytes), out = static_cast<double>(op.op_output_bytes);
  const double op_bytes = in + out;
  const bool both = in > 0.0 && out > 0.0;
  const double threads = total_threads(op);
  Traffic traffic;
  double efficiency = e.unknown;
  Source source = Source::kAnalytical;
  // Families without an element count: the op's bytes, else what the threads can move with 16 bytes each.
  auto from_op = [&](double bytes) {
    if (op_bytes > 0.0) return Traffic{bytes, 0.3, false};
    return Traffic{threads * 16.0, 1.0, true};
  };
  switch (name.family) {
    case Family::kElementwise:
      efficiency = e.vectorized;
      traffic = elementwise_traffic(op, name, op_bytes, both);
      break;
    case Family::kCasting:
      efficiency = e.casting;
      traffic = elementwise_traffic(op, name, op_bytes, both);
      break;
    case Family::kStrided:
      efficiency = e.strided;
      traffic = elementwise_traffic(op, name, op_bytes, both);
      break;
    case Family::kMultiTensor: {
      efficiency = e.multi_tensor;
      traffic.bytes = total_blocks(op) * name.elements_per_block * name.multi_tensor_bytes;
      // The last chunk of each tensor is not full: the op's own bytes bound the sum. Reads and writes of one tensor
      // may be listed once, so twice the op's bytes is the bound.
      if (op_bytes > 0.0) traffic.bytes = std::min(traffic.bytes, 2.0 * op_bytes);
      break;
    }
    case Family::kReduction:
      efficiency = e.reduction;
      traffic = from_op(op_bytes);
      break;
    case Family::kNorm:
      efficiency = e.norm;
      traffic = from_op(op_bytes);
      break;
    case Family::kNormBackward:
      efficiency = e.norm_backward;
      // The weight's gradient only reads.
      traffic = from_op(name.reads_only && in > 0.0 ? in : op_bytes);
      break;
    case Family::kSoftmax:
      efficiency = e.softmax;
      traffic = from_op(op_bytes);
      break;
    case Family::kConcatenate:
      efficiency = e.strided;
      traffic = from_op(op_bytes);
      break;
    case Family::kGather:
      efficiency = e.gather;
      // Only the rows asked for are read, whatever the table's size. A backward reads its gradients instead.
      if (op_name.find("backward") != std::string_view::npos) {
        traffic = from_op(2.0 * std::min(in, out > 0.0 ? std::max(out, in * 0.5) : in));
      } else {
        traffic = from_op(out > 0.0 ? 2.0 * out : in);
      }
      break;
    case Family::kSparseRows:
      efficiency = e.gather;
      traffic = {threads * 64.0, 0.5, false};  // a sector for the target and one for the element
      break;
    case Family::kRandom: {
      const double elements = op.elements != 0 ? static_cast<double>(op.elements)
                              : out > 0.0      ? out / name.element_bytes
                                               : threads * 4.0;
      traffic.bytes = elements * name.element_bytes;
      efficiency = e.vectorized;
      const double generate = gpu_.kernel_floor_ns + 1e9 * elements / gpu_.random_elements_per_s;
      Cost cost;
      cost.duration_ns = to_ns(std::max(generate, stream_ns(traffic.bytes, efficiency)));
      cost.source = Source::kAnalytical;
      cost.spread = 0.5;
      return cost;
    }
    case Family::kStream:
      efficiency = e.strided;
      traffic = from_op(name.writes_only && out > 0.0 ? out : op_bytes);
      traffic.bytes = std::min(traffic.bytes, threads * kBytesPerThread);
      traffic.spread = std::max(traffic.spread, 0.5);
      break;
    case Family::kTriton:
      efficiency = e.triton;
      // Without the kernel's arguments a Triton kernel's traffic is a guess from its program count.
      traffic = from_op(op_bytes);
      if (traffic.from_geometry) {
        efficiency = e.unknown;
        source = Source::kUnknown;
      }
      break;
    case Family::kAten:
      traffic = from_op(op_bytes);
      traffic.bytes = std::min(traffic.bytes, threads * kBytesPerThread);
      traffic.spread = std::max(traffic.spread, 0.5);
      if (traffic.from_geometry) source = Source::kUnknown;
      break;
    case Family::kAttention:
    case Family::kOther:
      traffic = from_op(op_bytes);
      traffic.spread = 1.0;
      source = Source::kUnknown;
      break;
  }
  Cost cost;
  cost.duration_ns = to_ns(stream_ns(traffic.bytes, efficiency));
  cost.source = source;
  cost.spread = traffic.spread;
  return cost;
}

}  // namespace phantora::cost
