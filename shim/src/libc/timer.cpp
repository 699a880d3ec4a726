#include "libc/timer.hpp"

#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <climits>

#include "client_state.hpp"
#include "libc/jitter.hpp"
#include "libc/real.hpp"
#include "raw_syscall.hpp"

namespace phantora::libc {
namespace {

using client::g_state;
using client::t_thread;

constexpr std::int64_t kLookAgainNs = 1'000'000'000;  // should a wake-up of the core ever be missed
constexpr std::int64_t kWakeAgainNs = 1'000'000;      // a waiter that was not yet asleep when it was woken
constexpr std::uint32_t kCatchUpWaits = 64;           // then a helper that fell behind sees global time
constexpr std::size_t kTimerStack = 64 * 1024;

constinit client::SpinLock g_lock;
constinit Waiter* g_waiters = nullptr;
constinit std::atomic<std::uint32_t> g_semaphore_waiters{0};
constinit std::atomic<bool> g_thread_started{false};

bool is_due(const Waiter& waiter) {
  if (waiter.deadline_ns == kForever) return false;
  if (g_state.header->global_ns.load() >= waiter.deadline_ns) return true;
  return waiter.driving && g_state.block->floor_ns.load() >= waiter.deadline_ns;
}

void publish_deadlines_locked() {
  std::uint64_t helpers = kForever;
  std::uint64_t drivers = kForever;
  for (const Waiter* waiter = g_waiters; waiter != nullptr; waiter = waiter->next) {
    if (waiter->expired) continue;
    auto& earliest = waiter->driving ? drivers : helpers;
    earliest = std::min(earliest, waiter->deadline_ns);
  }
  g_state.block->next_timer_ns.store(helpers);
  g_state.block->timed_wait_ns.store(drivers);
}

void wake(Waiter& waiter) {
  if (waiter.condition != nullptr) real::pthread_cond_broadcast(waiter.condition);
  if (waiter.address != nullptr) {
    if (waiter.count) waiter.address->fetch_add(1);
    client::futex_wake(*waiter.address, INT_MAX, waiter.shared);
  }
  if (waiter.descriptor >= 0) {
    const std::uint64_t one = 1;
    raw_syscall(SYS_write, waiter.descriptor, &one, sizeof one);
  }
}

// True if some woken waiter has not gone yet.
bool wake_due() {
  client::SpinGuard guard(g_lock);
  bool again = false;
  bool changed = false;
  for (Waiter* waiter = g_waiters; waiter != nullptr; waiter = waiter->next) {
    if (!waiter->expired) {
      if (!is_due(*waiter)) continue;
      waiter->expired = changed = true;
    }
    wake(*waiter);
    again = true;
  }
  if (changed) publish_deadlines_locked();
  return again;
}

void* run_timer(void*) {
  auto& block = *g_state.block;
  while (true) {
    const std::uint32_t before = block.timer_futex.load();
    helper_jitter();
    const bool again = wake_due();
    client::futex_wait(block.timer_futex, before, again ? kWakeAgainNs : kLookAgainNs, true);
    client::check_ending();
  }
}

}  // namespace

void start_timer_thread() {
  if (g_thread_started.load(std::memory_order_relaxed) || g_thread_started.exchange(true)) return;
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // the script's signal handlers belong on its own threads
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kTimerStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  if (real::pthread_create(&thread, &attributes, run_timer, nullptr) != 0) g_thread_started.store(false);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

TimedWait::TimedWait(Waiter& waiter) : waiter_(waiter) {
  helper_jitter();
  waiter.driving = client::is_driver();
  start_timer_thread();
  if (waiter.driving) {
    client::enter_blocking();
  } else {
    t_thread.seen = client::now_ns();
  }
  client::SpinGuard guard(g_lock);
  waiter.next = g_waiters;
  if (g_waiters != nullptr) g_waiters->previous = &waiter;
  g_waiters = &waiter;
  if (waiter.semaphore != nullptr) g_semaphore_waiters.fetch_add(1);
  publish_deadlines_locked();
}

TimedWait::~TimedWait() {
  const int error = errno;
  {
    client::SpinGuard guard(g_lock);
    if (waiter_.next != nullptr) waiter_.next->previous = waiter_.previous;
    if (waiter_.previous != nullptr) waiter_.previous->next = waiter_.next;
    if (g_waiters == &waiter_) g_waiters = waiter_.next;
    if (waiter_.semaphore != nullptr) g_semaphore_waiters.fetch_sub(1);
    publish_deadlines_locked();
  }
  if (waiter_.driving) {
    client::leave_blocking();
    if (timed_out_) client::move_clock_to(waiter_.deadline_ns);
  } else {
    // Global time may have jumped over many of its deadlines (the script slept). A watchdog that saw that jump would
    // take work that is long done for overdue before it looks whether it is done: it goes from deadline to deadline.
    const std::uint64_t global = g_state.header->global_ns.load(std::memory_order_relaxed);
    const bool late = global > waiter_.deadline_ns;
    t_thread.behind = late && t_thread.behind < kCatchUpWaits ? t_thread.behind + 1 : 0;
    const std::uint64_t reached = timed_out_ || late ? waiter_.deadline_ns : 0;
    t_thread.seen = std::max({t_thread.seen, reached, t_thread.behind != 0 ? 0 : global});
    t_thread.reads = 0;
    helper_jitter();
  }
  errno = error;
}

bool TimedWait::due() const { return is_due(waiter_); }

Outside::Outside() {
  helper_jitter();
  if (client::is_driver()) client::enter_blocking();
}

Outside::~Outside() {
  if (client::is_driver()) {
    client::leave_blocking();
  } else if (client::is_actor()) {
    t_thread.behind = 0;
    t_thread.seen = g_state.header->global_ns.load(std::memory_order_relaxed);
    helper_jitter();
  }
}

void wake_semaphore_waiters(sem_t* semaphore) {
  if (g_semaphore_waiters.load() == 0) return;
  client::SpinGuard guard(g_lock);
  for (Waiter* waiter = g_waiters; waiter != nullptr; waiter = waiter->next) {
    if (waiter->semaphore == semaphore) wake(*waiter);
  }
}

void reset_timers_after_fork() {
  g_lock.reset();
  g_waiters = nullptr;
  g_semaphore_waiters.store(0);
  g_thread_started.store(false);
}

std::uint64_t to_ns(const timespec& duration) {
  if (duration.tv_sec < 0) return 0;
  if (duration.tv_sec > 4'000'000'000LL) return kForever;  // over a hundred years: meant as "no limit"
  return static_cast<std::uint64_t>(duration.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(duration.tv_nsec);
}

timespec to_timespec(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

std::uint64_t virtual_deadline(const timespec& absolute) {
  const std::uint64_t ns = to_ns(absolute);
  if (ns == kForever) return kForever;
  const auto epoch = static_cast<std::uint64_t>(std::max<std::int64_t>(g_state.header->epoch_ns, 0));
  return ns > epoch ? ns - epoch : 0;
}

timespec real_in(std::uint64_t ns) { return to_timespec(client::real_ns(CLOCK_MONOTONIC) + ns); }

void show_time(std::uint64_t virtual_ns) {
  std::uint64_t held = g_state.seen.load();
  while (held < virtual_ns && !g_state.seen.compare_exchange_weak(held, virtual_ns)) {
  }
}

void show_a_moment() {
  const std::uint64_t next = std::max(client::now_ns(), t_thread.seen) + 1;
  if (client::is_actor()) {
    t_thread.seen = next;
  } else {
    show_time(next);
  }
}

bool is_virtual_clock(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI:
      return true;
    default:
      return false;
  }
}

}  // namespace phantora::libc
