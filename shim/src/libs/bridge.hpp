// What the library half of the shim needs of the CUDA half and of the client: streams, records on them, memory that
// libraries take, and what becomes of device bytes. Nothing else in libs/ knows how those are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "client.hpp"
#include "phantora/abi_libs.hpp"

namespace phantora::libs {

int current_device();       // as the script numbers devices
int current_node_device();  // as memory is accounted: the number inside the node
bool valid_stream(void* stream);

// Puts a device op on `stream` (recorded into a graph while the stream captures): fills device and stream, then
// submits.
void enqueue(void* stream, client::CallKind kind, wire::Record& record);
// Host waits until all work issued to `stream` is complete.
void wait(void* stream);

// Device memory a library takes for itself; false (and nothing taken) when the device has not that much left.
bool take_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind);
void give_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind);

// In program order: these bytes were written by a kernel that is not executed.
void mark_unknown(void* pointer, std::size_t bytes);
// The same for a column-major matrix with `ld` elements between columns: the gaps keep their values.
void mark_unknown_matrix(void* pointer, std::uint64_t rows, std::uint64_t columns, std::uint64_t ld,
                         std::size_t element_bytes);
// In program order: the known bytes of `source` go to `target`, the rest of it becomes unknown.
void copy_on_device(void* target, const void* source, std::size_t bytes);

// A library call that is answered with "not supported"; the report names it.
void unsupported(const char* call, const std::string& why = {});

}  // namespace phantora::libs
