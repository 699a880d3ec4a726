// Requests to the core that nobody waits for: payloads of small collectives are posted, and fetched when all is there.
// One thread receives the replies of all; each request in flight has a connection of its own, so that none blocks
// another.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "phantora/wire.hpp"

namespace phantora::async_core {

// Called on the receiving thread with the reply, or with a status other than kOk and no bytes.
using Done = void (*)(void* context, wire::Status status, std::vector<std::byte>&& reply);

// Sends at once; all frames are marked as not driving: they take no virtual time and are not ordered by it.
void start(wire::MessageType type, std::span<const std::byte> body, Done done, void* context);

}  // namespace phantora::async_core
