// Deadlines in virtual time. A thread that waits for something outside Phantora with a time-out registers a Waiter and
// waits in real time; when the core says that its time has come, the timer thread of the process wakes it. Deadlines of
// helper threads and of driving threads are published apart, because only the latter move H (rule 11,
// ActorBlock::next_timer_ns and timed_wait_ns).
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace phantora::libc {

inline constexpr std::uint64_t kForever = ~0ULL;

struct Waiter {
  std::uint64_t deadline_ns = kForever;
  bool driving = false;
  bool expired = false;
  // What wakes it; those that are set.
  pthread_cond_t* condition = nullptr;
  std::atomic<std::uint32_t>* address = nullptr;  // futex
  bool shared = false;
  bool count = false;          // `address` is this waiter's own: bump it first, so that no wake-up is lost
  int descriptor = -1;         // event descriptor
  sem_t* semaphore = nullptr;  // woken by sem_post in this process too
  Waiter* next = nullptr;
  Waiter* previous = nullptr;
};

// Registers for its lifetime; a driving thread counts as blocked outside meanwhile. On the end H (or the helper's time)
// is raised to the deadline if that was the reason.
class TimedWait {
 public:
  explicit TimedWait(Waiter& waiter);
  ~TimedWait();
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;
  // Has the deadline come for the calling thread?
  bool due() const;
  void timed_out() { timed_out_ = true; }

 private:
  Waiter& waiter_;
  bool timed_out_ = false;
};

// An untimed blocking call: driving threads tell the core (ActorBlock::outside), helpers note the time they come back.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
};

void wake_semaphore_waiters(sem_t* semaphore);
void reset_timers_after_fork();
void start_timer_thread();

// A virtual instant, ns since the start of the run, from a clock value as this process reads it. Past values give 0.
std::uint64_t virtual_deadline(const timespec& absolute);
std::uint64_t to_ns(const timespec& duration);
timespec to_timespec(std::uint64_t ns);
// Real absolute time of CLOCK_MONOTONIC `ns` from now.
timespec real_in(std::uint64_t ns);
// A detached child waits in real time; what its clock shows after a time-out (its own clock stays: rule 12).
void show_time(std::uint64_t virtual_ns);
// After a poll that found nothing: the calling thread sees at least one nanosecond more from here on, and no clock
// moves. Loops such as `while not ready: poll(0); if deadline - now() < 0: break` would not end otherwise.
void show_a_moment();
bool is_virtual_clock(clockid_t clock);

}  // namespace phantora::libc
