// Known and unknown device bytes (DESIGN 4). Known: real values are there. Unknown: written by a kernel that was not
// executed; reads as zeros. Kept per 4 KiB page, by the byte only where a page is mixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace phantora::cuda {

// The bytes get zero and unknown. Next to free where nothing was known.
void mark_unknown(void* pointer, std::size_t bytes);
// The same, in program order with what is still pending on these bytes (a collective's payload that has not come yet).
void mark_unknown_in_order(void* pointer, std::size_t bytes);
// The caller wrote real values (or, with `zero`, relies on the zeros that are there after mark_unknown).
void mark_known(void* pointer, std::size_t bytes, bool zero = false);
bool is_known(const void* pointer, std::size_t bytes);
// The parts of the range that hold real values, in order (what NCCL sends to other ranks).
struct KnownPart {
  std::uint64_t offset, bytes;  // offset from `pointer`
};
std::vector<KnownPart> known_parts(const void* pointer, std::size_t bytes);
// Copies what is known from device to device; the rest of the target becomes unknown. Right for overlapping ranges too.
void copy_known(void* target, const void* source, std::size_t bytes);
// Device to host: known bytes, zeros elsewhere. Cheap for large clean ranges but for writing the zeros.
void read_device(void* target, const void* source, std::size_t bytes);
// Host to device: real up to kCopyLimit, else unknown.
void write_device(void* target, const void* source, std::size_t bytes);
void fill_device(void* target, std::uint32_t pattern, unsigned pattern_bytes, std::size_t bytes);

}  // namespace phantora::cuda
