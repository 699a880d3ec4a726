// A request of a rank's thread over the socket, and how the topics (stores, locks, ...) answer it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "frame.hpp"
#include "phantora/wire.hpp"
#include "time.hpp"

namespace phantora::core {

struct Actor;

struct Request {
  std::uint64_t connection = 0;
  std::uint32_t sequence = 0;
  Actor* actor = nullptr;  // null: a detached process
  std::uint32_t pid = 0;
  bool driving = false;  // an event in the total order; its actor waits for the answer
  Instant h = 0;
  wire::MessageType type = wire::MessageType::kHello;
  Bytes body;
  std::uint64_t push = 0;
  bool answered = false;
  std::shared_ptr<bool> finished = std::make_shared<bool>(false);  // the same, for its time-out
  std::uint64_t order = 0;  // rank and child: what ties at equal times are broken by
  std::string doing;        // in words, for a hang
};
using RequestPtr = std::shared_ptr<Request>;

// What the topics need from the engine.
class Replies {
 public:
  virtual ~Replies() = default;
  // The caller's clock becomes at least `resume`. A second answer is ignored.
  virtual void reply(const RequestPtr& request, wire::Status status, Instant resume, Bytes body) = 0;
  virtual void refuse(const RequestPtr& request, wire::Status status) = 0;
  // Calls `act` at the request's time + `timeout_ns` unless it was answered before. kLatest or more: never.
  virtual void on_timeout(const RequestPtr& request, std::uint64_t timeout_ns, std::function<void()> act) = 0;
  virtual void add_note(const std::string& text) = 0;
};

// For notes and messages.
inline std::string who(const Request& request) {
  return request.actor == nullptr ? "a further process" : "rank " + std::to_string(request.order >> 16);
}

// When the answer to a request lets its caller go on, given what happened at `cause`.
inline Instant resume_at(const Request& request, Instant cause) {
  // A helper thread's clock is the global time; only driving threads and detached processes join.
  return request.driving || request.actor == nullptr ? later(request.h, cause) : request.h;
}

}  // namespace phantora::core
