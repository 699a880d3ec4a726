// NVIDIA's type numbers in the contract's terms.
#pragma once

#include <cstddef>

#include "phantora/abi_libs.hpp"
#include "phantora/wire.hpp"

namespace phantora::libs {

wire::DataType from_cuda_type(int type);  // kNone when unknown
wire::DataType from_nccl_type(int type);
std::size_t bytes_of(wire::DataType type);  // fp4: 1 (two share a byte; nothing here needs the exact size)

}  // namespace phantora::libs
