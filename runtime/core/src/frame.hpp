// Frames of the core's socket: a header, then a body. Bodies are read with bounds checks throughout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "phantora/wire.hpp"

namespace phantora::core {

using Bytes = std::string;  // raw bytes

// Reads a body from front to back. After the first thing that does not fit every read gives an empty value and ok() is
// false.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : body_(body) {}
  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::int32_t i32() { return number<std::int32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  std::int64_t i64() { return number<std::int64_t>(); }
  std::string text() {
    const std::uint32_t length = u32();
    if (length > body_.size()) ok_ = false;
    if (!ok_) return {};
    std::string value(body_.substr(0, length));
    body_.remove_prefix(length);
    return value;
  }
  // A list of texts; each takes at least its length field, which bounds the count.
  std::vector<std::string> texts() {
    const std::uint32_t count = u32();
    if (count > body_.size() / 4) ok_ = false;
    std::vector<std::string> values;
    for (std::uint32_t index = 0; ok_ && index < count; ++index) values.push_back(text());
    return values;
  }
  bool ok() const { return ok_; }
  bool complete() const { return ok_ && body_.empty(); }

 private:
  template <typename Number>
  Number number() {
    Number value{};
    if (body_.size() < sizeof value) ok_ = false;
    if (!ok_) return {};
    std::memcpy(&value, body_.data(), sizeof value);
    body_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view body_;
  bool ok_ = true;
};

class BodyWriter {
 public:
  BodyWriter& u8(std::uint8_t value) { return number(value); }
  BodyWriter& u32(std::uint32_t value) { return number(value); }
  BodyWriter& u64(std::uint64_t value) { return number(value); }
  BodyWriter& i64(std::int64_t value) { return number(value); }
  BodyWriter& text(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  BodyWriter& texts(const std::vector<std::string>& values) {
    u32(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) text(value);
    return *this;
  }
  Bytes take() { return std::move(bytes_); }

 private:
  template <typename Number>
  BodyWriter& number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes bytes_;
};

// Cuts a byte stream into frames. Before hello() was accepted only a Hello of the right size passes.
class FrameParser {
 public:
  struct Frame {
    wire::MessageHeader header;
    Bytes body;
  };
  enum class Outcome { kNeedMore, kFrame, kMalformed };
  explicit FrameParser(std::uint64_t token) : token_(token) {}

  void feed(const char* data, std::size_t bytes) { buffer_.append(data, bytes); }
  Outcome next(Frame& frame);
  bool welcomed() const { return welcomed_; }
  std::uint32_t pid() const { return pid_; }
  std::uint32_t last_actor() const { return last_actor_; }
  const std::string& error() const { return error_; }

 private:
  Outcome fail(std::string error);

  std::uint64_t token_;
  Bytes buffer_;
  std::size_t consumed_ = 0;
  bool welcomed_ = false, dead_ = false;
  std::uint32_t pid_ = 0, last_actor_ = ~0U;
  std::string error_;
};

}  // namespace phantora::core
