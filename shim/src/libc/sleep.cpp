// Sleeping is a wait in virtual time (rule 9).
#include "libc/sleep.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "client_state.hpp"
#include "libc/jitter.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"
#include "raw_syscall.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace phantora::libc {
namespace {

using client::g_state;
using client::t_thread;

constexpr std::uint64_t kLongestRealNs = 1'000'000'000;
constexpr std::uint64_t kResyncNs = 100'000'000;
constexpr std::uint64_t kSpinRealNs =
    200'000;  // sleeps of a child that follow each other this closely are a polling loop
constexpr std::uint32_t kSpinSleeps = 1'000;
constexpr std::uint64_t kSpinPauseNs = 10'000'000;

// Driving thread. While it looks after a child, real time must pass too, or its time-out is over before the child has
// run.
void sleep_driving(std::uint64_t until_ns) {
  const std::uint64_t now = client::now_ns();
  client::sleep_until(until_ns);
  if (!t_thread.polled_child || until_ns <= now) return;
  t_thread.polled_child = false;
  client::real_sleep_ns(std::min(until_ns - now, kLongestRealNs));
}

// Helper thread: waits until the global time has passed. Its own clock counts the sleep whatever the others do
// meanwhile.
void sleep_helper(std::uint64_t duration_ns) {
  const std::uint64_t global = g_state.header->global_ns.load(std::memory_order_relaxed);
  std::uint64_t base = std::max(t_thread.own, t_thread.seen);
  if (t_thread.behind == 0 && base + kResyncNs < global) base = global;
  std::atomic<std::uint32_t> word{0};
  Waiter waiter;
  waiter.deadline_ns = base + duration_ns;
  waiter.address = &word;
  waiter.count = true;
  {
    TimedWait wait(waiter);
    while (!wait.due()) client::futex_wait(word, word.load(), kLongestRealNs, false);
    wait.timed_out();
  }
  t_thread.own += duration_ns;
}

// Detached child: its own clock moves, at no real time, unless it only polls for something (then others must get to
// run).
void sleep_detached(std::uint64_t duration_ns) {
  helper_jitter();
  const std::uint64_t until = client::now_ns() + duration_ns;
  client::advance(duration_ns);
  if (t_thread.leads) {
    static constinit std::uint64_t last = 0;
    static constinit std::uint32_t close = 0;
    const std::uint64_t now = client::real_ns(CLOCK_MONOTONIC);
    close = now - last < kSpinRealNs ? close + 1 : 0;
    // Runnable until then: the core must not take a worker that is about to deliver for one that waits.
    if (close > kSpinSleeps) {
      client::real_sleep_ns(std::min(duration_ns, kSpinPauseNs));
    } else {
      raw_syscall(SYS_sched_yield);
    }
    last = client::real_ns(CLOCK_MONOTONIC);
  } else {
    client::real_sleep_ns(std::min(duration_ns, kLongestRealNs));
    show_time(until);
  }
}

}  // namespace

void sleep_virtual(std::uint64_t duration_ns) {
  if (duration_ns == 0) {
    client::clock_read_guard();
    raw_syscall(SYS_sched_yield);
  } else if (client::current_mode() == client::Mode::kDetached) {
    sleep_detached(duration_ns);
  } else if (client::is_driver()) {
    sleep_driving(client::now_ns() + std::min(duration_ns, kForever / 4));
  } else {
    sleep_helper(std::min(duration_ns, kForever / 4));
  }
}

}  // namespace phantora::libc

extern "C" {

int clock_nanosleep(clockid_t clock, int flags, const timespec* request, timespec* remaining) {
  if (!client::is_virtual() || !libc::is_virtual_clock(clock))
    return libc::real::clock_nanosleep(clock, flags, request, remaining);
  if (request->tv_nsec < 0 || request->tv_nsec > 999'999'999 || request->tv_sec < 0) return EINVAL;
  if ((flags & TIMER_ABSTIME) != 0) {
    const std::uint64_t until = libc::virtual_deadline(*request);
    const std::uint64_t now = client::now_ns();
    libc::sleep_virtual(until > now ? until - now : 0);
  } else {
    libc::sleep_virtual(libc::to_ns(*request));
  }
  return 0;
}

int nanosleep(const timespec* request, timespec* remaining) {
  if (!client::is_virtual()) return libc::real::nanosleep(request, remaining);
  const int error = clock_nanosleep(CLOCK_MONOTONIC, 0, request, remaining);
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

int usleep(useconds_t microseconds) {
  if (!client::is_virtual()) return libc::real::usleep(microseconds);
  libc::sleep_virtual(static_cast<std::uint64_t>(microseconds) * 1'000);
  return 0;
}

unsigned int sleep(unsigned int seconds) {
  if (!client::is_virtual()) return libc::real::sleep(seconds);
  libc::sleep_virtual(static_cast<std::uint64_t>(seconds) * 1'000'000'000);
  return 0;
}

}  // extern "C"
