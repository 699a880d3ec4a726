// The order in which device bytes change: actions (copies, fills, small ops, collective payloads) in program order.
//
// An action runs as soon as its data is there and no earlier action that is still pending touches the same bytes. So a
// collective's contribution that depends on nothing missing leaves at once, and one rank never waits for another in a
// way that real streams would not. Actions without ranges (client::run_in_order) are taken to touch everything.
//
// Waits of the host block, in real time, until every action that the host can see (copies to host memory, actions
// without ranges) has run, with all it depends on. A receive whose bytes nobody asked for may stay pending.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace phantora::values {

struct Range {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};
inline Range range(const void* pointer, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(pointer), bytes};
}

struct Access {
  Range reads[2];
  Range writes[2];
  std::span<const Range> more_reads, more_writes;  // copied when the action is queued; used by the torch adaptor
  bool host_visible = false;                       // a wait must not return before it has run
  bool everything = false;                         // conflicts with all other actions
};

// try_run returns true when done, false when its data has not arrived. It may be called on any thread of the process,
// under the queue's lock: it must not wait, and must not take Python's GIL. `destroy` follows, on a thread that issues
// or waits.
void run(bool (*try_run)(void*), void (*destroy)(void*), void* context, const Access& access);
bool pending();
void progress();  // runs what can run; never blocks
void drain();     // blocks for what the host can see
void arrived();   // data came in for some action: called by the thread that receives it

}  // namespace phantora::values
