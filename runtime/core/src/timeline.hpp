// The engine's heap of timed events in the total order (time, kind, source, per-source sequence).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "time.hpp"

namespace phantora::core {

// At equal times: what completes comes before what asks, and time-outs come last.
enum class EventKind : std::uint8_t { kCollectiveStart = 1, kCollectiveEnd, kRequest, kQuery, kSleep, kExit, kTimeout };

struct TimedEvent {
  Instant time = 0;
  EventKind kind = EventKind::kRequest;
  std::uint64_t source = 0, sequence = 0;
  std::function<void()> act;
  std::shared_ptr<bool> cancelled;  // time-outs that came to nothing
  auto key() const { return std::tuple(time, kind, source, sequence); }
};

class Timeline {
 public:
  void push(TimedEvent event);
  // Time of the next event that still counts; kNever when there is none.
  Instant next_time();
  TimedEvent pop();
  Instant now() const { return now_; }
  // Time moved on without an event (a forced deadline).
  void move_to(Instant at) { now_ = later(now_, at); }
  std::uint64_t processed() const { return processed_; }

 private:
  struct Later {
    bool operator()(const TimedEvent& a, const TimedEvent& b) const { return a.key() > b.key(); }
  };
  std::vector<TimedEvent> heap_;
  Instant now_ = 0;
  std::uint64_t processed_ = 0;
};

// A broken invariant of ours: the message names virtual time and event.
class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace phantora::core
