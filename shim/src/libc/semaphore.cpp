// Semaphores: Python's locks are made of them. A timed wait tries, then sleeps until sem_post in this process or its
// deadline.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client_state.hpp"
#include "libc/jitter.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

constexpr std::int64_t kFirstLookNs = 200'000;
constexpr std::int64_t kLongestSharedNs = 20'000'000;  // another process may post: nobody wakes us then
constexpr std::int64_t kLongestPrivateNs = 1'000'000'000;

// glibc keeps the futex flag beside the 64-bit value: non-zero if processes share the semaphore.
bool shared_between_processes(const sem_t* semaphore) {
  int flag = 0;
  std::memcpy(&flag, reinterpret_cast<const char*>(semaphore) + 8, sizeof flag);
  return flag != 0;
}

int wait_timed(sem_t* semaphore, const timespec& absolute) {
  if (absolute.tv_nsec < 0 || absolute.tv_nsec > 999'999'999) {
    errno = EINVAL;
    return -1;
  }
  if (libc::real::sem_trywait(semaphore) == 0) return 0;
  const std::uint64_t until = libc::virtual_deadline(absolute);
  if (client::current_mode() == client::Mode::kDetached) {
    libc::helper_jitter();
    const std::uint64_t now = client::now_ns();
    const timespec real = libc::real_in(until > now ? std::min(until - now, libc::kForever / 4) : 0);
    const int result = libc::real::sem_clockwait(semaphore, CLOCK_MONOTONIC, &real);
    if (result != 0 && errno == ETIMEDOUT) libc::show_time(until);
    return result;
  }
  std::atomic<std::uint32_t> word{0};
  libc::Waiter waiter;
  waiter.deadline_ns = until;
  waiter.address = &word;
  waiter.count = true;
  waiter.semaphore = semaphore;
  const std::int64_t longest = shared_between_processes(semaphore) ? kLongestSharedNs : kLongestPrivateNs;
  libc::TimedWait wait(waiter);
  for (std::int64_t gap = kFirstLookNs;; gap = std::min(gap * 2, longest)) {
    const std::uint32_t before = word.load();
    if (libc::real::sem_trywait(semaphore) == 0) return 0;
    if (wait.due()) break;
    if (client::futex_wait(word, before, longest == kLongestSharedNs ? gap : longest, false) == -EINTR) {
      errno = EINTR;
      return -1;
    }
  }
  wait.timed_out();
  errno = ETIMEDOUT;
  return -1;
}

}  // namespace

extern "C" {

int sem_wait(sem_t* semaphore) {
  if (!client::is_actor()) {
    libc::helper_jitter();
    return libc::real::sem_wait(semaphore);
  }
  if (libc::real::sem_trywait(semaphore) == 0) return 0;
  libc::Outside outside;
  return libc::real::sem_wait(semaphore);
}

int sem_timedwait(sem_t* semaphore, const timespec* deadline) {
  if (!client::is_virtual()) return libc::real::sem_timedwait(semaphore, deadline);
  return wait_timed(semaphore, *deadline);
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* deadline) {
  if (!client::is_virtual()) return libc::real::sem_clockwait(semaphore, clock, deadline);
  return wait_timed(semaphore, *deadline);
}

int sem_post(sem_t* semaphore) noexcept {
  const int result = libc::real::sem_post(semaphore);
  if (client::is_actor()) libc::wake_semaphore_waiters(semaphore);
  libc::helper_jitter();
  return result;
}

}  // extern "C"
