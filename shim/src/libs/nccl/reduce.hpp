// NCCL's reductions on host bytes.
#pragma once

#include <cstddef>
#include <span>

#include "phantora/wire.hpp"

namespace phantora::libs::nccl {

enum class Reduction { kSum, kProd, kMax, kMin, kAvg };

// target[i] = reduction over sources[r][i], in the order of ranks, for `count` elements. Half, bfloat16 and 8-bit
// floats are summed in float and rounded once; the real library rounds after every hop, so last bits may differ.
void reduce(wire::DataType type, Reduction reduction, std::span<const std::byte* const> sources, std::size_t count,
            std::byte* target);

// data[i] *= scalar (one element of the same type), for PreMulSum.
void scale(wire::DataType type, std::byte* data, std::size_t count, const std::byte* scalar);

}  // namespace phantora::libs::nccl
