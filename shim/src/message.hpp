// Bodies of the core's messages: little-endian integers, strings and blobs as u32 length + bytes (see wire.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phantora::client {

class Body {
 public:
  template <typename Integer>
  Body& put(Integer value) {
    static_assert(std::is_integral_v<Integer>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
    return *this;
  }
  Body& u8(std::uint8_t value) { return put(value); }
  Body& u32(std::uint32_t value) { return put(value); }
  Body& i32(std::int32_t value) { return put(value); }
  Body& u64(std::uint64_t value) { return put(value); }
  Body& i64(std::int64_t value) { return put(value); }
  Body& blob(const void* data, std::size_t bytes) {
    u32(static_cast<std::uint32_t>(bytes));
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + bytes);
    return *this;
  }
  Body& string(std::string_view text) { return blob(text.data(), text.size()); }
  std::span<const std::byte> span() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads a reply. A short reply makes every further read zero and ok() false; nothing is read past the end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <typename Integer>
  Integer get() {
    Integer value = 0;
    if (rest_.size() < sizeof value) {
      ok_ = false;
      rest_ = {};
      return 0;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }
  std::uint8_t u8() { return get<std::uint8_t>(); }
  std::uint32_t u32() { return get<std::uint32_t>(); }
  std::int32_t i32() { return get<std::int32_t>(); }
  std::uint64_t u64() { return get<std::uint64_t>(); }
  std::int64_t i64() { return get<std::int64_t>(); }
  std::span<const std::byte> blob() {
    const std::uint32_t bytes = u32();
    if (rest_.size() < bytes) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto result = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return result;
  }
  std::string string() {
    const auto bytes = blob();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace phantora::client
