// Error codes: the calling thread's last runtime error, names and texts.
#pragma once

#include "phantora/abi13.hpp"

namespace phantora::cuda {

// Runtime functions return through this: keeps a failure as the thread's last error, as CUDA does (not-ready included).
int keep(int status);
int peek_last_error();
int take_last_error();

const char* runtime_error_name(int status);  // "cudaErrorMemoryAllocation"; "unrecognized error code" where none
const char* driver_error_name(int status);   // nullptr where the driver has no such code
const char* error_text(int status);          // nullptr where none

}  // namespace phantora::cuda
