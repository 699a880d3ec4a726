// Threads: a new one starts with its creator's clock and a name of its own that is free of thread ids; who joins it
// joins its clock.
#include <algorithm>
#include <new>

#include "client_state.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

using client::t_thread;

constexpr std::uint32_t kThreadClocks = 256;

// Final clocks of ended helper threads. A lost entry means a join that moves no clock.
struct ThreadClock {
  std::atomic<pthread_t> thread;
  std::atomic<std::uint64_t> clock_ns;
};
constinit ThreadClock g_clocks[kThreadClocks] = {};

ThreadClock& clock_slot(pthread_t thread) { return g_clocks[(thread >> 12) % kThreadClocks]; }

struct Start {
  void* (*function)(void*);
  void* argument;
  std::uint64_t clock_ns;
  std::uint64_t identity;
};

// Runs when a thread ends, however it ends.
struct ThreadEnd {
  ~ThreadEnd() {
    if (client::is_virtual() && !t_thread.driving && !t_thread.leads && t_thread.own > 0) {
      auto& slot = clock_slot(pthread_self());
      slot.clock_ns.store(t_thread.own);
      slot.thread.store(pthread_self(), std::memory_order_release);
    }
    client::unregister_thread();
  }
};

void* run_thread(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  t_thread.own = start.clock_ns;
  t_thread.behind = 1;  // until its first wait it sees the time at which it was made, whenever it gets to run
  t_thread.identity = start.identity;
  t_thread.named = true;
  // A cancelled or exiting thread unwinds through here as well.
  ThreadEnd end;
  return start.function(start.argument);
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  if (!client::is_virtual()) return libc::real::pthread_create(thread, attributes, function, argument);
  auto* start =
      new (std::nothrow) Start{function, argument, client::stamp_ns(),
                               client::mix_identity(t_thread.identity ^ 0x7468726561640000ULL, ++t_thread.created)};
  if (start == nullptr) return EAGAIN;
  const int error = libc::real::pthread_create(thread, attributes, run_thread, start);
  if (error != 0) delete start;
  return error;
}

int pthread_join(pthread_t thread, void** result) {
  if (!client::is_virtual()) return libc::real::pthread_join(thread, result);
  int error = 0;
  {
    libc::Outside outside;
    error = libc::real::pthread_join(thread, result);
  }
  auto& slot = clock_slot(thread);
  pthread_t held = thread;
  const std::uint64_t clock_ns = slot.clock_ns.load();
  if (error == 0 && slot.thread.compare_exchange_strong(held, pthread_t{})) client::join(clock_ns);
  return error;
}

}  // extern "C"
