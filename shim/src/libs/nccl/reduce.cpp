#include "libs/nccl/reduce.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace phantora::libs::nccl {
namespace {

// A small float: sign, `kExponent` and `kMantissa` bits. kFinite: no infinity, one NaN (E4M3); overflow saturates, as
// NVIDIA's conversions do for 8-bit floats.
template <typename Bits, int kExponent, int kMantissa, bool kFinite, bool kSaturate>
struct SmallFloat {
  Bits bits;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr unsigned kExponentMask = (1U << kExponent) - 1, kMantissaMask = (1U << kMantissa) - 1;
  static constexpr unsigned kSign = 1U << (kExponent + kMantissa);
  static constexpr unsigned kNan = kFinite ? kSign - 1 : (kExponentMask << kMantissa | 1U << (kMantissa - 1));
  static constexpr unsigned kLargest = kFinite ? kSign - 2 : (kExponentMask << kMantissa) - 1;

  static float decode(SmallFloat value) {
    const unsigned exponent = value.bits >> kMantissa & kExponentMask, mantissa = value.bits & kMantissaMask;
    float magnitude = 0;
    const bool special = exponent == kExponentMask && (!kFinite || mantissa == kMantissaMask);
    if (special) {
      magnitude = mantissa == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
      magnitude = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa);
    } else {
      magnitude =
          std::ldexp(static_cast<float>(mantissa | 1U << kMantissa), static_cast<int>(exponent) - kBias - kMantissa);
    }
    return (value.bits & kSign) != 0 ? -magnitude : magnitude;
  }

  static SmallFloat encode(float value) {
    const unsigned sign = std::signbit(value) ? kSign : 0;
    if (std::isnan(value)) return {static_cast<Bits>(sign | kNan)};
    const float magnitude = std::fabs(value);
    int exponent = 0;
    std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent with f in [0.5, 1)
    int shift = exponent - 1 - kMantissa;
    if (shift < 1 - kBias - kMantissa) shift = 1 - kBias - kMantissa;  // subnormal
    unsigned code = 0;
    if (std::isinf(magnitude)) {
      code = kLargest + 1;
    } else if (magnitude != 0) {
      // Rounds to nearest, ties to even; a carry into the exponent comes out right because the code is one integer.
      const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -shift)));
      const int biased = shift + kBias + kMantissa;  // 1 for subnormals and the smallest normals
      code = units + (static_cast<unsigned>(biased - 1) << kMantissa);
    }
    if (code > kLargest) code = kSaturate ? kLargest : (kExponentMask << kMantissa);
    return {static_cast<Bits>(sign | code)};
  }
};

using Half = SmallFloat<std::uint16_t, 5, 10, false, false>;
using Bfloat16 = SmallFloat<std::uint16_t, 8, 7, false, false>;
using Fp8E4M3 = SmallFloat<std::uint8_t, 4, 3, true, true>;
using Fp8E5M2 = SmallFloat<std::uint8_t, 5, 2, false, true>;

// How an element is calculated with: integers and wide floats as they are (wrapping, as on the GPU), small floats as
// float.
template <typename Element>
struct Calculation {
  using Type = Element;
  static Type load(Element value) { return value; }
  static Element store(Type value) { return value; }
};
template <typename Bits, int kE, int kM, bool kF, bool kS>
struct Calculation<SmallFloat<Bits, kE, kM, kF, kS>> {
  using Type = float;
  using Element = SmallFloat<Bits, kE, kM, kF, kS>;
  static Type load(Element value) { return Element::decode(value); }
  static Element store(Type value) { return Element::encode(value); }
};

template <typename Type>
Type add(Type a, Type b) {
  if constexpr (std::is_integral_v<Type>) {
    using Unsigned = std::make_unsigned_t<Type>;
    return static_cast<Type>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}
template <typename Type>
Type multiply(Type a, Type b) {
  if constexpr (std::is_integral_v<Type>) {
    return static_cast<Type>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}
template <typename Type>
Type larger(Type a, Type b) {
  if constexpr (std::is_floating_point_v<Type>)
    return std::isnan(a) || std::isnan(b) ? static_cast<Type>(NAN) : (a > b ? a : b);
  return a > b ? a : b;
}
template <typename Type>
Type smaller(Type a, Type b) {
  if constexpr (std::is_floating_point_v<Type>)
    return std::isnan(a) || std::isnan(b) ? static_cast<Type>(NAN) : (a < b ? a : b);
  return a < b ? a : b;
}

template <typename Element>
void reduce_as(Reduction reduction, std::span<const std::byte* const> sources, std::size_t count, std::byte* target) {
  using Rules = Calculation<Element>;
  using Type = typename Rules::Type;
  for (std::size_t i = 0; i < count; ++i) {
    Type sum{};
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      Element element;
      std::memcpy(&element, sources[rank] + i * sizeof element, sizeof element);
      const Type value = Rules::load(element);
      if (rank == 0) {
        sum = value;
        continue;
      }
      switch (reduction) {
        case Reduction::kSum:
        case Reduction::kAvg:
          sum = add(sum, value);
          break;
        case Reduction::kProd:
          sum = multiply(sum, value);
          break;
        case Reduction::kMax:
          sum = larger(sum, value);
          break;
        case Reduction::kMin:
          sum = smaller(sum, value);
          break;
      }
    }
    if (reduction == Reduction::kAvg) sum = static_cast<Type>(sum / static_cast<Type>(sources.size()));
    const Element element = Rules::store(sum);
    std::memcpy(target + i * sizeof element, &element, sizeof element);
  }
}

template <typename Element>
void scale_as(std::byte* data, std::size_t count, const std::byte* scalar) {
  using Rules = Calculation<Element>;
  Element factor;
  std::memcpy(&factor, scalar, sizeof factor);
  for (std::size_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, data + i * sizeof element, sizeof element);
    element = Rules::store(multiply(Rules::load(element), Rules::load(factor)));
    std::memcpy(data + i * sizeof element, &element, sizeof element);
  }
}

template <typename Element>
struct Tag {
  using Type = Element;
};

template <typename Use>
void with_type(wire::DataType type, Use use) {
  using wire::DataType;
  switch (type) {
    case DataType::kInt8:
      return use(Tag<std::int8_t>{});
    case DataType::kUint8:
    case DataType::kBool:
      return use(Tag<std::uint8_t>{});
    case DataType::kInt32:
      return use(Tag<std::int32_t>{});
    case DataType::kUint32:
      return use(Tag<std::uint32_t>{});
    case DataType::kInt64:
      return use(Tag<std::int64_t>{});
    case DataType::kUint64:
      return use(Tag<std::uint64_t>{});
    case DataType::kFloat16:
      return use(Tag<Half>{});
    case DataType::kFloat32:
      return use(Tag<float>{});
    case DataType::kFloat64:
      return use(Tag<double>{});
    case DataType::kBfloat16:
      return use(Tag<Bfloat16>{});
    case DataType::kFp8E4M3:
      return use(Tag<Fp8E4M3>{});
    case DataType::kFp8E5M2:
      return use(Tag<Fp8E5M2>{});
    default:
      return;  // NCCL has no others
  }
}

}  // namespace

void reduce(wire::DataType type, Reduction reduction, std::span<const std::byte* const> sources, std::size_t count,
            std::byte* target) {
  with_type(type, [&](auto tag) { reduce_as<typename decltype(tag)::Type>(reduction, sources, count, target); });
}

void scale(wire::DataType type, std::byte* data, std::size_t count, const std::byte* scalar) {
  with_type(type, [&](auto tag) { scale_as<typename decltype(tag)::Type>(data, count, scalar); });
}

}  // namespace phantora::libs::nccl
