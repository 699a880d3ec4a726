// Sleeping in virtual time, for the wrappers that sleep under another name (poll and select without descriptors).
#pragma once

#include <cstdint>

namespace phantora::libc {

void sleep_virtual(std::uint64_t duration_ns);

}  // namespace phantora::libc
