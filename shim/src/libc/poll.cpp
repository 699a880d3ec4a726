// poll, select and epoll. Without a time-out they are ordinary blocking calls; with one, the time-out is virtual: an
// event descriptor is waited for beside the caller's, and the timer thread writes to it when the deadline has come.
// Without descriptors they sleep.
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "client_state.hpp"
#include "libc/jitter.hpp"
#include "libc/real.hpp"
#include "libc/sleep.hpp"
#include "libc/timer.hpp"
#include "raw_syscall.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

constexpr int kHighDescriptor = 700;

std::uint64_t add(std::uint64_t now, std::uint64_t ns) {
  return ns >= libc::kForever - now ? libc::kForever : now + ns;
}

int wake_descriptor() {
  auto& held = client::t_thread.wake_fd;
  // A script that closed all descriptors closed this one too.
  if (held != 0 && phantora::raw_syscall(SYS_fcntl, held - 1, F_GETFD) >= 0) return held - 1;
  held = 0;
  long fd = phantora::raw_syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
  const long high = fd < 0 ? -1 : phantora::raw_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (high >= 0) {
    phantora::raw_syscall(SYS_close, fd);
    fd = high;
  }
  if (fd >= 0) held = static_cast<int>(fd) + 1;
  return static_cast<int>(fd);
}

// `attempt()` looks without blocking: > 0 ready, < 0 error, 0 nothing yet. Between two looks any of `waited` must
// become ready.
template <typename Attempt>
int wait_until_ready(Attempt attempt, std::vector<pollfd>& waited, std::uint64_t timeout_ns, const sigset_t* mask) {
  int result = attempt();
  if (result != 0) return result;
  if (timeout_ns == 0) {
    client::clock_read_guard();  // a loop around an empty poll must end as one around a clock read does
    libc::show_a_moment();
    return 0;
  }
  const std::uint64_t deadline = add(client::now_ns(), timeout_ns);
  const int descriptor = wake_descriptor();
  waited.push_back({descriptor, POLLIN, 0});
  {
    libc::Waiter waiter;
    waiter.deadline_ns = deadline;
    waiter.descriptor = descriptor;
    libc::TimedWait wait(waiter);
    while (true) {
      if (wait.due()) {
        wait.timed_out();
        result = attempt();
        break;
      }
      // Should there be no event descriptor (too many open files), looks a hundred times a second.
      const timespec gap = {0, 10'000'000};
      if (libc::real::ppoll(waited.data(), waited.size(), descriptor < 0 ? &gap : nullptr, mask) < 0) {
        result = -1;
        break;
      }
      result = attempt();
      if (result != 0) break;
    }
    const int error = errno;
    std::uint64_t count = 0;
    if (descriptor >= 0) phantora::raw_syscall(SYS_read, descriptor, &count, sizeof count);
    errno = error;
  }
  if (result == 0) libc::show_a_moment();
  return result;
}

// timeout_ns kForever: none.
int poll_virtual(pollfd* fds, nfds_t count, std::uint64_t timeout_ns, const sigset_t* mask) {
  const timespec now = {0, 0};
  const auto attempt = [&] { return libc::real::ppoll(fds, count, &now, mask); };
  if (timeout_ns == libc::kForever) {
    const int ready = attempt();
    if (ready != 0) return ready;
    libc::Outside outside;
    return libc::real::ppoll(fds, count, nullptr, mask);
  }
  const bool any = std::any_of(fds, fds + count, [](const pollfd& entry) { return entry.fd >= 0; });
  if (!any && timeout_ns > 0) {
    libc::sleep_virtual(timeout_ns);
    return attempt();
  }
  if (client::current_mode() == client::Mode::kDetached) {
    libc::helper_jitter();
    const timespec real = libc::to_timespec(timeout_ns);
    const std::uint64_t deadline = add(client::now_ns(), timeout_ns);
    const int ready = libc::real::ppoll(fds, count, &real, mask);
    if (ready == 0) libc::show_time(add(deadline, 1));
    return ready;
  }
  std::vector<pollfd> waited(fds, fds + count);
  return wait_until_ready(attempt, waited, timeout_ns, mask);
}

struct Sets {
  fd_set read, write, except;
};

int select_virtual(int count, fd_set* read, fd_set* write, fd_set* except, std::uint64_t timeout_ns,
                   const sigset_t* mask) {
  const auto call = [&](const timespec* timeout) {
    return libc::real::pselect(count, read, write, except, timeout, mask);
  };
  const timespec none = {0, 0};
  if (count < 0 || count > FD_SETSIZE) return call(&none);
  Sets asked;
  std::memset(&asked, 0, sizeof asked);
  if (read != nullptr) asked.read = *read;
  if (write != nullptr) asked.write = *write;
  if (except != nullptr) asked.except = *except;
  const auto attempt = [&] {
    if (read != nullptr) *read = asked.read;
    if (write != nullptr) *write = asked.write;
    if (except != nullptr) *except = asked.except;
    return call(&none);
  };
  std::vector<pollfd> waited;
  for (int fd = 0; fd < count; ++fd) {
    short events = 0;
    if (FD_ISSET(fd, &asked.read)) events |= POLLIN | POLLHUP;
    if (FD_ISSET(fd, &asked.write)) events |= POLLOUT;
    if (FD_ISSET(fd, &asked.except)) events |= POLLPRI;
    if (events != 0) waited.push_back({fd, events, 0});
  }
  if (timeout_ns == libc::kForever) {
    const int ready = attempt();
    if (ready != 0) return ready;
    if (read != nullptr) *read = asked.read;
    if (write != nullptr) *write = asked.write;
    if (except != nullptr) *except = asked.except;
    libc::Outside outside;
    return call(nullptr);
  }
  if (waited.empty() && timeout_ns > 0) {
    libc::sleep_virtual(timeout_ns);
    return attempt();
  }
  if (client::current_mode() == client::Mode::kDetached) {
    libc::helper_jitter();
    const timespec real = libc::to_timespec(timeout_ns);
    const std::uint64_t deadline = add(client::now_ns(), timeout_ns);
    const int ready = call(&real);
    if (ready == 0) libc::show_time(add(deadline, 1));
    return ready;
  }
  return wait_until_ready(attempt, waited, timeout_ns, mask);
}

int epoll_virtual(int epoll, epoll_event* events, int room, std::uint64_t timeout_ns, const sigset_t* mask) {
  const auto attempt = [&] { return libc::real::epoll_pwait(epoll, events, room, 0, mask); };
  if (timeout_ns == libc::kForever) {
    const int ready = attempt();
    if (ready != 0) return ready;
    libc::Outside outside;
    return libc::real::epoll_pwait(epoll, events, room, -1, mask);
  }
  if (client::current_mode() == client::Mode::kDetached) {
    libc::helper_jitter();
    const std::uint64_t deadline = add(client::now_ns(), timeout_ns);
    const auto milliseconds = static_cast<int>(std::min<std::uint64_t>((timeout_ns + 999'999) / 1'000'000, INT_MAX));
    const int ready = libc::real::epoll_pwait(epoll, events, room, milliseconds, mask);
    if (ready == 0) libc::show_time(add(deadline, 1));
    return ready;
  }
  std::vector<pollfd> waited = {{epoll, POLLIN, 0}};
  return wait_until_ready(attempt, waited, timeout_ns, mask);
}

std::uint64_t from_milliseconds(int milliseconds) {
  return milliseconds < 0 ? libc::kForever : static_cast<std::uint64_t>(milliseconds) * 1'000'000;
}
std::uint64_t from_timespec(const timespec* timeout) {
  return timeout == nullptr ? libc::kForever : libc::to_ns(*timeout);
}

}  // namespace

extern "C" {

int poll(pollfd* fds, nfds_t count, int timeout) {
  if (!client::is_virtual()) return libc::real::poll(fds, count, timeout);
  return poll_virtual(fds, count, from_milliseconds(timeout), nullptr);
}

int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!client::is_virtual()) return libc::real::ppoll(fds, count, timeout, mask);
  return poll_virtual(fds, count, from_timespec(timeout), mask);
}

int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t) { return poll(fds, count, timeout); }
int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t) {
  return ppoll(fds, count, timeout, mask);
}

int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (!client::is_virtual()) return libc::real::select(count, read, write, except, timeout);
  std::uint64_t timeout_ns = libc::kForever;
  if (timeout != nullptr) {
    timeout_ns = libc::to_ns({timeout->tv_sec, 0});
    if (timeout_ns != libc::kForever) timeout_ns += static_cast<std::uint64_t>(timeout->tv_usec) * 1'000;
  }
  return select_virtual(count, read, write, except, timeout_ns, nullptr);
}

int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout, const sigset_t* mask) {
  if (!client::is_virtual()) return libc::real::pselect(count, read, write, except, timeout, mask);
  return select_virtual(count, read, write, except, from_timespec(timeout), mask);
}

int epoll_wait(int epoll, epoll_event* events, int room, int timeout) {
  if (!client::is_virtual()) return libc::real::epoll_wait(epoll, events, room, timeout);
  return epoll_virtual(epoll, events, room, from_milliseconds(timeout), nullptr);
}

int epoll_pwait(int epoll, epoll_event* events, int room, int timeout, const sigset_t* mask) {
  if (!client::is_virtual()) return libc::real::epoll_pwait(epoll, events, room, timeout, mask);
  return epoll_virtual(epoll, events, room, from_milliseconds(timeout), mask);
}

}  // extern "C"
