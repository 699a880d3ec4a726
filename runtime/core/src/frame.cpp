#include "frame.hpp"

#include "time.hpp"

namespace phantora::core {

FrameParser::Outcome FrameParser::fail(std::string error) {
  error_ = std::move(error);
  dead_ = true;
  buffer_.clear();
  return Outcome::kMalformed;
}

FrameParser::Outcome FrameParser::next(Frame& frame) {
  if (dead_) return Outcome::kMalformed;
  if (buffer_.size() - consumed_ < sizeof(wire::MessageHeader)) return Outcome::kNeedMore;
  std::memcpy(&frame.header, buffer_.data() + consumed_, sizeof frame.header);
  const auto& header = frame.header;
  const auto type = static_cast<std::uint16_t>(header.type);
  if (type < static_cast<std::uint16_t>(wire::MessageType::kHello) ||
      type >= static_cast<std::uint16_t>(wire::MessageType::kCount)) {
    return fail("unknown message type " + std::to_string(type));
  }
  if (header.bytes > wire::kMaxMessageBytes)
    return fail("message of " + std::to_string(header.bytes) + " bytes is too large");
  if (header.driving > 1) return fail("`driving` is neither 0 nor 1");
  if (header.h_ns > kLatest) return fail("time out of range");
  const bool hello = header.type == wire::MessageType::kHello;
  if (hello == welcomed_) return fail(hello ? "a second Hello" : "a message before Hello");
  if (hello && header.bytes != 16) return fail("Hello of a wrong size");

  const std::size_t whole = sizeof header + header.bytes;
  if (buffer_.size() - consumed_ < whole) return Outcome::kNeedMore;
  frame.body.assign(buffer_, consumed_ + sizeof header, header.bytes);
  consumed_ += whole;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  } else if (consumed_ > (1U << 16)) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  if (hello) {
    BodyReader body(frame.body);
    if (body.u64() != token_) return fail("Hello with a wrong token");
    pid_ = body.u32();
    welcomed_ = true;
  }
  last_actor_ = header.actor;
  return Outcome::kFrame;
}

}  // namespace phantora::core
