// State of a cuBLAS handle, and how its calls become records.
#pragma once

#include "libs/bridge.hpp"
#include "libs/types.hpp"

namespace phantora::libs::cublas {

struct Handle {
  std::uint64_t magic;
  int device;  // inside the node
  void* stream;
  std::size_t default_workspace;  // bytes charged to the device until destroy
  void* workspace;
  std::size_t workspace_bytes;
  int math_mode, pointer_mode, atomics, sm_target, emulation_strategy;
};

// nullptr when `handle` is none of ours (cublasStatus NOT_INITIALIZED then).
Handle* from(void* handle);

// One matrix product as cuBLAS takes it: column-major, m x n x k, `batch` of them.
struct Product {
  std::int64_t m, n, k, batch = 1;
  wire::DataType type_a, type_b, type_c, compute;
  int transpose_a = 0, transpose_b = 0, epilogue = 0;
  bool grouped = false;
};
// Records the product on `stream`. `entry` is the function's name; empty products cost a call and nothing else.
void issue(void* stream, const char* entry, const Product& product);

wire::DataType compute_type(int cublas_compute, wire::DataType operand, int math_mode);

}  // namespace phantora::libs::cublas
