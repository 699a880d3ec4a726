#include "libs/values.hpp"

#include <pthread.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "client.hpp"
#include "client_state.hpp"

namespace phantora::values {
namespace {

struct Action {
  bool (*try_run)(void*);
  void (*destroy)(void*);
  void* context;
  Access access;
  std::vector<Range> ranges;  // what access.more_* point at once the action is queued

  void own_ranges() {
    const std::size_t reads = access.more_reads.size();
    ranges.assign(access.more_reads.begin(), access.more_reads.end());
    ranges.insert(ranges.end(), access.more_writes.begin(), access.more_writes.end());
    access.more_reads = std::span<const Range>(ranges).first(reads);
    access.more_writes = std::span<const Range>(ranges).subspan(reads);
  }
};

struct Dead {
  void (*destroy)(void*);
  void* context;
};

// How far ahead of the oldest pending action others are looked at again when data arrives. Each is looked at once,
// against all earlier ones, when it is issued.
constexpr std::size_t kWindow = 512;

struct Queue {
  std::mutex lock;
  std::deque<Action> actions;
  std::vector<Dead> dead;                  // ran on the receiving thread: destroyed by a thread that may take the GIL
  std::atomic<std::size_t> count{0};       // actions.size(), readable without the lock
  std::atomic<std::uint32_t> arrivals{0};  // futex: bumped whenever something may have become possible
};

Queue& queue() {
  static Queue& instance = []() -> Queue& {
    static unsigned char storage[sizeof(Queue)] __attribute__((aligned(alignof(Queue))));
    auto* made = new (storage) Queue;
    // A forked child owns none of its parent's pending actions, and the lock may have been held: start afresh, leak the
    // rest.
    pthread_atfork(nullptr, nullptr, [] { new (storage) Queue; });
    return *made;
  }();
  return instance;
}

thread_local bool t_inside = false;  // an action is running on this thread: what it issues runs at once

bool overlap(const Range& a, const Range& b) {
  return a.bytes != 0 && b.bytes != 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

bool any_overlap(std::span<const Range> left, std::span<const Range> right) {
  for (const Range& a : left)
    for (const Range& b : right)
      if (overlap(a, b)) return true;
  return false;
}

bool any_overlap(std::span<const Range> left, const Access& later, bool reads_too) {
  return any_overlap(left, later.writes) || any_overlap(left, later.more_writes) ||
         (reads_too && (any_overlap(left, later.reads) || any_overlap(left, later.more_reads)));
}

bool conflict(const Access& earlier, const Access& later) {
  if (earlier.everything || later.everything) return true;
  return any_overlap(earlier.writes, later, true) || any_overlap(earlier.more_writes, later, true) ||
         any_overlap(earlier.reads, later, false) || any_overlap(earlier.more_reads, later, false);
}

bool attempt(Action& action) {
  t_inside = true;
  const bool done = action.try_run(action.context);
  t_inside = false;
  return done;
}

// With the lock held. One pass in order is enough: an action can only be freed by an earlier one.
void run_ready(Queue& queue) {
  for (std::size_t i = 0; i < queue.actions.size() && i < kWindow;) {
    Action& action = queue.actions[i];
    bool blocked = false;
    for (std::size_t earlier = 0; earlier < i && !blocked; ++earlier)
      blocked = conflict(queue.actions[earlier].access, action.access);
    if (!blocked && attempt(action)) {
      queue.dead.push_back({action.destroy, action.context});
      queue.actions.erase(queue.actions.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (action.access.everything) break;
    ++i;
  }
  queue.count.store(queue.actions.size(), std::memory_order_release);
}

bool host_waits(const Queue& queue) {
  for (const Action& action : queue.actions)
    if (action.access.host_visible || action.access.everything) return true;
  return false;
}

void bury(std::vector<Dead>& dead) {
  for (const Dead& one : dead)
    if (one.destroy != nullptr) one.destroy(one.context);
}

}  // namespace

void run(bool (*try_run)(void*), void (*destroy)(void*), void* context, const Access& access) {
  Action action{try_run, destroy, context, access, {}};
  Queue& all = queue();
  std::vector<Dead> dead;
  bool done = false;
  if (t_inside) {
    done = try_run(context);
    if (done && destroy != nullptr) destroy(context);
    if (done) return;
  }
  {
    std::unique_lock<std::mutex> hold;
    if (!t_inside) hold = std::unique_lock(all.lock);
    if (!t_inside) {
      if (!all.actions.empty()) run_ready(all);
      bool blocked = false;
      for (const Action& earlier : all.actions)
        if (conflict(earlier.access, access)) {
          blocked = true;
          break;
        }
      if (!blocked) done = attempt(action);
      dead.swap(all.dead);
    }
    if (!done) {
      all.actions.push_back(action);
      all.actions.back().own_ranges();
      all.count.store(all.actions.size(), std::memory_order_release);
    }
  }
  if (done && destroy != nullptr) destroy(context);
  bury(dead);
}

bool pending() { return queue().count.load(std::memory_order_acquire) != 0; }

void progress() {
  if (!pending() || t_inside) return;
  Queue& all = queue();
  std::vector<Dead> dead;
  {
    std::lock_guard hold(all.lock);
    run_ready(all);
    dead.swap(all.dead);
  }
  bury(dead);
}

void arrived() {
  Queue& all = queue();
  {
    std::lock_guard hold(all.lock);
    run_ready(all);
  }
  all.arrivals.fetch_add(1, std::memory_order_release);
  client::futex_wake(all.arrivals, 1 << 20, false);
}

void drain() {
  if (!pending() || t_inside) return;
  Queue& all = queue();
  for (;;) {
    const std::uint32_t seen = all.arrivals.load(std::memory_order_acquire);
    std::vector<Dead> dead;
    bool waits = false;
    {
      std::lock_guard hold(all.lock);
      run_ready(all);
      waits = host_waits(all);
      dead.swap(all.dead);
    }
    bury(dead);
    if (!waits) return;
    client::futex_wait(all.arrivals, seen, 200'000'000, false);
    client::check_ending();  // the peer that should have sent may be gone: the core then ends the run
  }
}

}  // namespace phantora::values

namespace phantora::client {

void run_in_order(bool (*try_run)(void*), void (*destroy)(void*), void* context) {
  values::Access access;
  access.everything = true;
  values::run(try_run, destroy, context, access);
}

bool values_pending() { return values::pending(); }
void drain_values() { values::drain(); }

}  // namespace phantora::client
