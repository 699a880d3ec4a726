// Children and ends of processes: the clock goes along with exec and comes back with wait (rules 12 and 13).
#include <alloca.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "client_state.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"
#include "raw_syscall.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;
namespace wire = phantora::wire;

namespace {

constexpr std::size_t kAdded = 3;
constexpr std::size_t kTextBytes = 192;

std::size_t count_entries(char* const* environment) {
  std::size_t count = 0;
  while (environment != nullptr && environment[count] != nullptr) ++count;
  return count;
}

bool starts_with(const char* text, const char* start) { return std::strncmp(text, start, std::strlen(start)) == 0; }

// Fills `out` (room for all entries + kAdded + 1). No allocation: a vfork child runs this in its parent's memory.
void add_clock(char* const* environment, bool new_process, char** out, char (&texts)[kAdded][kTextBytes]) {
  auto& state = client::g_state;
  std::uint64_t identity = state.identity.load();
  // A forked child was renamed at the fork already; vfork and spawn come through here first.
  if (new_process) identity = client::mix_identity(identity, state.forks.fetch_add(1) + 1);
  std::snprintf(texts[0], kTextBytes, "PHANTORA_CHILD_CLOCK=%llu:%llx",
                static_cast<unsigned long long>(client::stamp_ns()), static_cast<unsigned long long>(identity));
  std::snprintf(texts[1], kTextBytes, "PHANTORA_RANK=%d", state.rank);
  std::snprintf(texts[2], kTextBytes, "PHANTORA_SEGMENT=%.103s", state.segment_path);
  std::size_t count = 0;
  for (std::size_t index = 0; environment != nullptr && environment[index] != nullptr; ++index) {
    char* entry = environment[index];
    if (starts_with(entry, "PHANTORA_CHILD_CLOCK=") || starts_with(entry, "PHANTORA_RANK=") ||
        starts_with(entry, "PHANTORA_SEGMENT=")) {
      continue;
    }
    out[count++] = entry;
  }
  for (auto& text : texts) out[count++] = text;
  out[count] = nullptr;
}

// A macro, because the memory must be that of the calling frame.
#define PHANTORA_WITH_CLOCK(environment, new_process)                                                         \
  char clock_texts[kAdded][kTextBytes];                                                                       \
  auto** with_clock = static_cast<char**>(alloca((count_entries(environment) + kAdded + 1) * sizeof(char*))); \
  add_clock(environment, new_process, with_clock, clock_texts)

bool in_vfork_child() { return phantora::raw_syscall(SYS_getpid) != client::g_state.pid; }

// The child's final clock, if it left one.
void join_child(pid_t pid) {
  auto* clocks = reinterpret_cast<wire::ChildClock*>(reinterpret_cast<char*>(client::g_state.header) +
                                                     client::g_state.header->clock_offset);
  auto& slot = clocks[static_cast<std::uint64_t>(pid) % wire::kClockSlots];
  auto expected = static_cast<std::uint64_t>(pid);
  const std::uint64_t clock_ns = slot.clock_ns.load();
  if (slot.pid.compare_exchange_strong(expected, 0)) client::join(clock_ns);
}

// `call` returns a pid; status as from wait.
template <typename Call>
pid_t wait_for_child(int options, const int* status, Call call) {
  if (!client::is_virtual()) return call();
  pid_t pid = 0;
  if ((options & WNOHANG) != 0) {
    pid = call();
    client::t_thread.polled_child = pid == 0;
  } else {
    libc::Outside outside;
    pid = call();
  }
  const int error = errno;
  if (pid > 0 && status != nullptr && (WIFEXITED(*status) || WIFSIGNALED(*status))) join_child(pid);
  errno = error;
  return pid;
}

}  // namespace

extern "C" {

int execve(const char* path, char* const arguments[], char* const environment[]) noexcept {
  if (!client::is_virtual()) return libc::real::execve(path, arguments, environment);
  PHANTORA_WITH_CLOCK(environment, in_vfork_child());
  return libc::real::execve(path, arguments, with_clock);
}

int execvpe(const char* file, char* const arguments[], char* const environment[]) noexcept {
  if (!client::is_virtual()) return libc::real::execvpe(file, arguments, environment);
  PHANTORA_WITH_CLOCK(environment, in_vfork_child());
  return libc::real::execvpe(file, arguments, with_clock);
}

int execv(const char* path, char* const arguments[]) noexcept { return execve(path, arguments, environ); }
int execvp(const char* file, char* const arguments[]) noexcept { return execvpe(file, arguments, environ); }

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) noexcept {
  if (!client::is_virtual()) return libc::real::posix_spawn(pid, path, actions, attributes, arguments, environment);
  PHANTORA_WITH_CLOCK(environment, true);
  return libc::real::posix_spawn(pid, path, actions, attributes, arguments, with_clock);
}

int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) noexcept {
  if (!client::is_virtual()) return libc::real::posix_spawnp(pid, file, actions, attributes, arguments, environment);
  PHANTORA_WITH_CLOCK(environment, true);
  return libc::real::posix_spawnp(pid, file, actions, attributes, arguments, with_clock);
}

pid_t waitpid(pid_t wanted, int* status, int options) {
  int local = 0;
  int* where = status == nullptr ? &local : status;
  return wait_for_child(options, where, [=] { return libc::real::waitpid(wanted, where, options); });
}

pid_t wait(int* status) { return waitpid(-1, status, 0); }

pid_t wait4(pid_t wanted, int* status, int options, rusage* usage) noexcept {
  int local = 0;
  int* where = status == nullptr ? &local : status;
  return wait_for_child(options, where, [=] { return libc::real::wait4(wanted, where, options, usage); });
}

pid_t wait3(int* status, int options, rusage* usage) noexcept { return wait4(-1, status, options, usage); }

int waitid(idtype_t type, id_t wanted, siginfo_t* info, int options) {
  if (!client::is_virtual()) return libc::real::waitid(type, wanted, info, options);
  siginfo_t local = {};
  siginfo_t* where = info == nullptr ? &local : info;
  where->si_pid = 0;
  int result = 0;
  if ((options & WNOHANG) != 0) {
    result = libc::real::waitid(type, wanted, where, options);
    client::t_thread.polled_child = result == 0 && where->si_pid == 0;
  } else {
    libc::Outside outside;
    result = libc::real::waitid(type, wanted, where, options);
  }
  const int error = errno;
  const bool ended = where->si_code == CLD_EXITED || where->si_code == CLD_KILLED || where->si_code == CLD_DUMPED;
  if (result == 0 && where->si_pid > 0 && ended && (options & WNOWAIT) == 0) join_child(where->si_pid);
  errno = error;
  return result;
}

// `exit` itself needs no wrapper: the handler that the constructor registered runs last. These run no handlers.
[[noreturn]] void _exit(int status) {
  client::send_exit(status);
  client::end_process(status);
}

[[noreturn]] void _Exit(int status) noexcept { _exit(status); }

[[noreturn]] void quick_exit(int status) noexcept {
  client::send_exit(status);
  libc::real::quick_exit(status);
  client::end_process(status);
}

}  // extern "C"
