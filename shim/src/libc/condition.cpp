// Condition variables and timed mutexes. Time-outs are in virtual time; a child that is detached waits as long in real
// time.
#include <algorithm>
#include <cerrno>

#include "client_state.hpp"
#include "libc/jitter.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

constexpr std::uint64_t kShortestGilNs = 500'000;
constexpr std::uint64_t kLongestGilNs = 50'000'000;
constexpr std::uint64_t kFirstTryNs = 200'000;
constexpr std::uint64_t kLongestTryNs = 10'000'000;

// The interpreter waits for its GIL in steps of a few milliseconds and asks the holder to let go after each: that is
// real time, and must not move any clock (which thread waits how long for the GIL differs from run to run).
int wait_for_gil(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec& deadline) {
  const std::uint64_t until = libc::virtual_deadline(deadline);
  const std::uint64_t now = client::now_ns();
  const timespec real = libc::real_in(std::clamp(until > now ? until - now : 0, kShortestGilNs, kLongestGilNs));
  return libc::real::pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &real);
}

int wait_timed(pthread_cond_t* condition, pthread_mutex_t* mutex, std::uint64_t deadline_ns) {
  if (client::current_mode() == client::Mode::kDetached) {
    libc::helper_jitter();
    const std::uint64_t now = client::now_ns();
    const timespec real = libc::real_in(deadline_ns > now ? std::min(deadline_ns - now, libc::kForever / 4) : 0);
    const int error = libc::real::pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &real);
    if (error == ETIMEDOUT) libc::show_time(deadline_ns);
    return error;
  }
  libc::Waiter waiter;
  waiter.deadline_ns = deadline_ns;
  waiter.condition = condition;
  libc::TimedWait wait(waiter);
  if (!wait.due()) {
    const int error = libc::real::pthread_cond_wait(condition, mutex);
    if (error != 0) return error;
  }
  // Woken otherwise: to the caller that is a signal, or a spurious wake-up, which it must expect.
  if (!wait.due()) return 0;
  wait.timed_out();
  return ETIMEDOUT;
}

bool valid(const timespec& time) { return time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000; }

template <typename Lock>
int lock_timed(pthread_mutex_t* mutex, const timespec& deadline, Lock real_lock) {
  int error = libc::real::pthread_mutex_trylock(mutex);
  if (error != EBUSY) return error;
  const std::uint64_t until = libc::virtual_deadline(deadline);
  if (client::current_mode() == client::Mode::kDetached) {
    const std::uint64_t now = client::now_ns();
    const timespec real = libc::real_in(until > now ? until - now : 0);
    error = real_lock(real);
    if (error == ETIMEDOUT) libc::show_time(until);
    return error;
  }
  libc::Waiter waiter;
  waiter.deadline_ns = until;
  libc::TimedWait wait(waiter);
  for (std::uint64_t gap = kFirstTryNs; !wait.due(); gap = std::min(gap * 2, kLongestTryNs)) {
    const timespec real = libc::real_in(gap);
    error = real_lock(real);
    if (error != ETIMEDOUT) return error;
  }
  wait.timed_out();
  return ETIMEDOUT;
}

}  // namespace

extern "C" {

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!client::is_actor() || libc::from_python(__builtin_return_address(0)))
    return libc::real::pthread_cond_wait(condition, mutex);
  libc::Outside outside;
  return libc::real::pthread_cond_wait(condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* deadline) {
  if (!client::is_virtual()) return libc::real::pthread_cond_timedwait(condition, mutex, deadline);
  if (!valid(*deadline)) return EINVAL;
  if (libc::from_python(__builtin_return_address(0))) return wait_for_gil(condition, mutex, *deadline);
  return wait_timed(condition, mutex, libc::virtual_deadline(*deadline));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  if (!client::is_virtual()) return libc::real::pthread_cond_clockwait(condition, mutex, clock, deadline);
  if (!valid(*deadline)) return EINVAL;
  if (libc::from_python(__builtin_return_address(0))) return wait_for_gil(condition, mutex, *deadline);
  return wait_timed(condition, mutex, libc::virtual_deadline(*deadline));
}

int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* deadline) noexcept {
  if (!client::is_virtual()) return libc::real::pthread_mutex_timedlock(mutex, deadline);
  return lock_timed(mutex, *deadline, [mutex](const timespec& real) {
    return libc::real::pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &real);
  });
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* deadline) noexcept {
  if (!client::is_virtual()) return libc::real::pthread_mutex_clocklock(mutex, clock, deadline);
  return lock_timed(mutex, *deadline, [mutex](const timespec& real) {
    return libc::real::pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &real);
  });
}

}  // extern "C"
