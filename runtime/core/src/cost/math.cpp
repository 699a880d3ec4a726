#include "math.hpp"

#include <bit>

namespace phantora::cost {

double log2_exact(double value) {
  // value = 2^e * m, m in [1/sqrt2, sqrt2); ln m = 2 atanh((m-1)/(m+1))
  std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    exponent += 1;
  }
  const double ratio = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = ratio * ratio;
  double sum = 0.0;
  for (int power = 21; power >= 1; power -= 2) sum = sum * square + 1.0 / static_cast<double>(power);
  return static_cast<double>(exponent) + sum * ratio * 2.8853900817779268;  // 2 / ln 2
}

double exp2_exact(double value) {
  const double shifted = value + 0.5;
  std::int64_t whole = static_cast<std::int64_t>(shifted);
  if (static_cast<double>(whole) > shifted) whole -= 1;
  const double fraction = (value - static_cast<double>(whole)) * 0.6931471805599453;  // ln 2
  double sum = 1.0;
  for (int term = 16; term >= 1; --term) sum = 1.0 + sum * fraction / static_cast<double>(term);
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(whole + 1023) << 52);
}

std::uint64_t to_ns(double ns) {
  if (!(ns > 1.0)) return 1;
  if (ns > 4.611686018427388e18) return 1ULL << 62;
  return static_cast<std::uint64_t>(ns + 0.5);
}

}  // namespace phantora::cost
