// syscall(2) as a function: libstdc++ (futures, atomic waits) and Rust's standard library make their futex calls
// through it.
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>

#include "client_state.hpp"
#include "libc/entropy.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"
#include "raw_syscall.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

long with_errno(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// A futex wait with a time-out, in virtual time; woken by the timer thread through the caller's own word.
long futex_timed(std::uint32_t* word, int operation, std::uint32_t value, const timespec& timeout, std::uint32_t bits) {
  const int command = operation & FUTEX_CMD_MASK;
  const std::uint64_t now = client::now_ns();
  const std::uint64_t length = libc::to_ns(timeout);
  std::uint64_t until =
      command == FUTEX_WAIT_BITSET ? libc::virtual_deadline(timeout) : now + std::min(length, libc::kForever / 4);
  const int bitset = FUTEX_WAIT_BITSET | (operation & FUTEX_PRIVATE_FLAG);
  if (client::current_mode() == client::Mode::kDetached) {
    const timespec real = libc::real_in(until > now ? std::min(until - now, libc::kForever / 4) : 0);
    const long result = phantora::raw_syscall(SYS_futex, word, bitset, value, &real, nullptr, bits);
    if (result == -ETIMEDOUT) libc::show_time(until);
    return result;
  }
  auto& shared_word = *reinterpret_cast<std::atomic<std::uint32_t>*>(word);
  if (shared_word.load() != value) return -EAGAIN;
  libc::Waiter waiter;
  waiter.deadline_ns = until;
  waiter.address = &shared_word;
  waiter.shared = (operation & FUTEX_PRIVATE_FLAG) == 0;
  libc::TimedWait wait(waiter);
  long result = 0;
  if (!wait.due()) result = phantora::raw_syscall(SYS_futex, word, bitset, value, nullptr, nullptr, bits);
  if (!wait.due() || result != 0) return result;
  wait.timed_out();
  return -ETIMEDOUT;
}

long futex_virtual(long word, long operation, long value, long timeout, long second, long bits) {
  const int command = static_cast<int>(operation) & FUTEX_CMD_MASK;
  const bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
  const auto mask = command == FUTEX_WAIT ? FUTEX_BITSET_MATCH_ANY : static_cast<std::uint32_t>(bits);
  if (waits && timeout != 0) {
    return futex_timed(reinterpret_cast<std::uint32_t*>(word), static_cast<int>(operation),
                       static_cast<std::uint32_t>(value), *reinterpret_cast<const timespec*>(timeout), mask);
  }
  if (!waits || !client::is_actor())
    return phantora::raw_syscall6(SYS_futex, word, operation, value, timeout, second, bits);
  libc::Outside outside;
  return phantora::raw_syscall6(SYS_futex, word, operation, value, timeout, second, bits);
}

}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  if (client::is_virtual()) {
    switch (number) {
      case SYS_futex:
        return with_errno(futex_virtual(a[0], a[1], a[2], a[3], a[4], a[5]));
      case SYS_clock_gettime:
        return clock_gettime(static_cast<clockid_t>(a[0]), reinterpret_cast<timespec*>(a[1]));
      case SYS_getrandom:
        libc::fill_random(reinterpret_cast<void*>(a[0]), static_cast<std::size_t>(a[1]));
        return a[1];
      default:
        break;
    }
  }
  return with_errno(phantora::raw_syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
