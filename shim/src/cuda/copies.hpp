// Copies and fills: the record on the stream, and the bytes in program order with everything else that touches them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/state.hpp"

namespace phantora::cuda {

struct Copy {
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t width = 0;  // bytes a row
  std::size_t rows = 1;
  std::size_t target_pitch = 0, source_pitch = 0;
  std::size_t planes = 1;
  std::size_t target_plane = 0, source_plane = 0;  // bytes between planes
};

enum class Blocking { kNo, kYes };

// `kind` is a cudaMemcpyKind; where the bytes lie is told by the addresses. A copy from the device to pageable memory
// blocks the host, as CUDA's does, whatever `blocking` says.
Status copy(const Copy& what, int kind, void* stream, Blocking blocking);
Status fill(void* target, std::uint32_t pattern, unsigned pattern_bytes, std::size_t width_bytes, std::size_t rows,
            std::size_t pitch, void* stream);

// Host functions run when the host has next waited for their stream, in order.
Status add_host_function(void* stream, void (*function)(void*), void* data);
void run_host_functions(int node_device, int stream);  // stream -1: all of the device

}  // namespace phantora::cuda
