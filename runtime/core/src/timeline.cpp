#include "timeline.hpp"

#include <algorithm>
#include <string>

namespace phantora::core {
namespace {

std::string describe(const TimedEvent& event) {
  return "event kind " + std::to_string(static_cast<int>(event.kind)) + " of source " + std::to_string(event.source) +
         " #" + std::to_string(event.sequence) + " at " + std::to_string(event.time) + " ns";
}

}  // namespace

void Timeline::push(TimedEvent event) {
  if (event.time < now_) {
    throw InvariantError("time would go back: " + describe(event) + " pushed at " + std::to_string(now_) + " ns");
  }
  heap_.push_back(std::move(event));
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

Instant Timeline::next_time() {
  while (!heap_.empty() && heap_.front().cancelled != nullptr && *heap_.front().cancelled) {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    heap_.pop_back();
  }
  return heap_.empty() ? kNever : heap_.front().time;
}

TimedEvent Timeline::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), Later{});
  TimedEvent event = std::move(heap_.back());
  heap_.pop_back();
  if (event.time < now_)
    throw InvariantError("time went back: " + describe(event) + " after " + std::to_string(now_) + " ns");
  if (!heap_.empty() && heap_.front().key() == event.key())
    throw InvariantError("two events with one key: " + describe(event));
  now_ = event.time;
  ++processed_;
  return event;
}

}  // namespace phantora::core
