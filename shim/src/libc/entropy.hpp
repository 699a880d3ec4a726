// Seeded entropy (rule 8): one stream for each thread, named by run seed, rank and the way the thread came to be.
#pragma once

#include <cstddef>

namespace phantora::libc {

void fill_random(void* data, std::size_t bytes);
bool is_random_device(const char* path);
// A descriptor that reads as the next stretch of the stream; -1 and errno on failure.
int open_random();

}  // namespace phantora::libc
