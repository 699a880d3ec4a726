// System calls of the client itself. The C library's functions of these names are wrapped by src/libc, so none is
// called here.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "client_state.hpp"
#include "raw_syscall.hpp"

namespace phantora::client {

void SpinLock::lock() {
  for (unsigned spins = 0; flag_.exchange(1, std::memory_order_acquire) != 0;) {
    while (flag_.load(std::memory_order_relaxed) != 0) {
      if (++spins % 64 == 0) {
        raw_syscall(SYS_sched_yield);
      } else {
        __builtin_ia32_pause();
      }
    }
  }
}

long futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t timeout_ns, bool shared) {
  timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  return raw_syscall(SYS_futex, &word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value,
                     timeout_ns < 0 ? nullptr : &timeout, nullptr, 0);
}

long futex_wake(std::atomic<std::uint32_t>& word, int count, bool shared) {
  return raw_syscall(SYS_futex, &word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), count, nullptr, nullptr, 0);
}

std::uint64_t real_ns(clockid_t clock) {
  timespec now{};
  raw_syscall(SYS_clock_gettime, clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void real_sleep_ns(std::uint64_t ns) {
  timespec gap{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  raw_syscall(SYS_nanosleep, &gap, nullptr);
}

pid_t real_tid() { return static_cast<pid_t>(raw_syscall(SYS_gettid)); }

void complain(const char* text) {
  iovec parts[3] = {{const_cast<char*>("phantora: "), 10},
                    {const_cast<char*>(text), std::strlen(text)},
                    {const_cast<char*>("\n"), 1}};
  raw_syscall(SYS_writev, 2, parts, 3);
}

void end_process(int status) {
  raw_syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

void check_ending() {
  // After its own end was told, this process leaves with its own status: that it was the last one ends the run.
  if (g_state.exited.load(std::memory_order_relaxed)) return;
  if (g_state.header != nullptr && is_actor() && g_state.header->run_state.load(std::memory_order_acquire) == 2) {
    end_process(kEndingStatus);
  }
}

}  // namespace phantora::client
