// Virtual time: integer nanoseconds since the start of the run. No floating point is used for time anywhere in the
// core.
#pragma once

#include <cstdint>

namespace phantora::core {

using Instant = std::uint64_t;   // a point in virtual time, ns
using Duration = std::uint64_t;  // a length of virtual time, ns

inline constexpr Instant kNever = ~0ULL;
// No record may name an instant or a duration beyond this (about 36 years): sums of two never overflow.
inline constexpr std::uint64_t kLatest = 1ULL << 60;

inline constexpr Instant later(Instant a, Instant b) { return a > b ? a : b; }
inline constexpr Instant earlier(Instant a, Instant b) { return a < b ? a : b; }

}  // namespace phantora::core
