// Clock reads: epoch + the calling thread's virtual time, for every clock but those of CPU time (rule 1). A read is
// free.
#include <algorithm>
#include <cerrno>

#include "client_state.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

std::uint64_t read_clock() {
  client::clock_read_guard();
  const std::uint64_t now = std::max(client::now_ns(), client::t_thread.seen);
  return static_cast<std::uint64_t>(client::g_state.header->epoch_ns) + now;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (!client::is_virtual() || !libc::is_virtual_clock(clock)) return libc::real::clock_gettime(clock, now);
  *now = libc::to_timespec(read_clock());
  return 0;
}

int clock_getres(clockid_t clock, timespec* resolution) noexcept { return libc::real::clock_getres(clock, resolution); }

int gettimeofday(timeval* now, void* zone) noexcept {
  if (!client::is_virtual()) return libc::real::gettimeofday(now, zone);
  const std::uint64_t ns = read_clock();
  now->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  now->tv_usec = static_cast<suseconds_t>(ns % 1'000'000'000 / 1'000);
  return 0;
}

time_t time(time_t* now) noexcept {
  if (!client::is_virtual()) return libc::real::time(now);
  const auto seconds = static_cast<time_t>(read_clock() / 1'000'000'000);
  if (now != nullptr) *now = seconds;
  return seconds;
}

int timespec_get(timespec* now, int base) noexcept {
  if (!client::is_virtual() || base != TIME_UTC) return libc::real::timespec_get(now, base);
  *now = libc::to_timespec(read_clock());
  return base;
}

}  // extern "C"
