// Stream-ordered memory pools. A freed block goes back to the device at once (release threshold 0, as CUDA's default):
// what a pool holds is what is allocated from it.
#pragma once

#include <cstddef>

#include "cuda/state.hpp"

namespace phantora::cuda {

Status pool_allocate(void** pointer, std::size_t bytes, void* pool,
                     void* stream);  // pool nullptr: the device's current one
Status pool_free(void* pointer, void* stream);
Status default_pool(void** pool, int ordinal);
Status current_pool(void** pool, int ordinal);
Status set_current_pool(int ordinal, void* pool);
Status create_pool(void** pool, const abi::PoolProperties* properties);
Status destroy_pool(void* pool);
bool valid_pool(void* pool);
Status pool_attribute(void* pool, int attribute, void* value);
Status set_pool_attribute(void* pool, int attribute, const void* value);
Status set_pool_access(void* pool, const abi::MemoryAccess* list, std::size_t count);
Status pool_access(int* flags, void* pool, const abi::MemoryLocation* location);

}  // namespace phantora::cuda
