// Hostile bytes on the socket: through the frame parser in pieces, and good frames with hostile bodies through the
// engine.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "engine.hpp"

using namespace phantora;
using namespace phantora::core;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Config config = Config::from_text(
      "world_size = 2\nextra_actors = 1\nring_slots = 16\ncore.costs = unit\ncore.ending_grace_ms = 0\n");
  constexpr std::uint64_t kToken = 7;
  FrameParser parser(kToken);
  wire::MessageHeader hello{};
  hello.bytes = 16;
  hello.type = wire::MessageType::kHello;
  const std::uint64_t body[2] = {kToken, 1};
  parser.feed(reinterpret_cast<const char*>(&hello), sizeof hello);
  parser.feed(reinterpret_cast<const char*>(body), sizeof body);
  FrameParser::Frame frame;
  if (parser.next(frame) != FrameParser::Outcome::kFrame) std::abort();
  for (std::size_t at = 0; at < size; at += 13) {
    parser.feed(reinterpret_cast<const char*>(data + at), std::min<std::size_t>(13, size - at));
    while (parser.next(frame) == FrameParser::Outcome::kFrame) {
    }
  }

  Segment segment(config);
  Server server(segment.header().rpc_name, segment.header().rpc_token, [] {});
  try {
    Engine engine(config, segment, server);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      segment.actor(rank).pid = static_cast<std::uint32_t>(getpid());
      segment.actor(rank).state = static_cast<std::uint32_t>(wire::ActorState::kLive);
    }
    engine.turn();
    std::uint64_t connection = 16;
    // type, flags, length, then so many bytes of body
    while (size > 3) {
      const std::size_t length = std::min<std::size_t>(data[2], size - 3);
      Incoming message;
      message.connection = connection++;
      message.frame.header.type =
          static_cast<wire::MessageType>(2 + data[0] % (static_cast<unsigned>(wire::MessageType::kCount) - 2));
      message.frame.header.driving = data[1] & 1;
      message.frame.header.actor = (data[1] & 2) != 0 ? ~0U : (data[1] >> 2) & 1;
      message.frame.header.h_ns = data[1] >> 3;
      message.frame.body.assign(reinterpret_cast<const char*>(data + 3), length);
      engine.receive(message);
      if ((data[1] & 0x80) != 0) engine.turn();
      data += 3 + length;
      size -= 3 + length;
    }
    for (int turns = 0; turns < 4; ++turns) engine.turn();
    const std::atomic<bool> stop{true};
    engine.run(stop);
  } catch (const InvariantError&) {
    std::abort();
  }
  return 0;
}
