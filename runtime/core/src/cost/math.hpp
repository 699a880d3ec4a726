// Logarithms and powers that give the same bits on every machine (libm's last bits differ between versions).
#pragma once

#include <cstdint>

namespace phantora::cost {

double log2_exact(double value);  // value > 0, normal; within 1e-14 of the true logarithm
double exp2_exact(double value);  // |value| < 1000
std::uint64_t to_ns(double ns);   // rounds to nearest, at least 1, at most 2^62

constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace phantora::cost
