// The C library's own functions behind the wrappers of this folder: `real::read(...)`. Looked up on first use, because
// wrappers are called before any constructor has run; all at once when the process joins a run.
#pragma once

#undef _FORTIFY_SOURCE  // its inline versions would clash with the wrappers' definitions

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace phantora::libc {

// The definition after this library. `version`: of symbols that exist in several; else nullptr.
void* find_real(const char* name, const char* version);
// The definition in one library (a handle of dlopen), whatever this library defines under that name.
void* find_in(void* library, const char* name);

// Clears errno-like surprises: a failed look-up ends the process with the name of what is missing.
template <typename Function>
class Real {
 public:
  constexpr explicit Real(const char* name, const char* version = nullptr) : name_(name), version_(version) {}
  Function get() {
    Function found = function_.load(std::memory_order_relaxed);
    if (__builtin_expect(found == nullptr, 0)) {
      found = reinterpret_cast<Function>(find_real(name_, version_));
      function_.store(found, std::memory_order_relaxed);
    }
    return found;
  }
  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    return get()(arguments...);
  }

 private:
  std::atomic<Function> function_{nullptr};
  const char* name_;
  const char* version_;
};

// One list declares, defines and resolves. Second column: the version where the symbol has several.
// clang-format off
#define PHANTORA_REAL_FUNCTIONS(X) \
  X(clock_gettime, nullptr) X(clock_getres, nullptr) X(gettimeofday, nullptr) X(time, nullptr) \
  X(timespec_get, nullptr) X(nanosleep, nullptr) X(clock_nanosleep, nullptr) X(usleep, nullptr) X(sleep, nullptr) \
  X(pthread_cond_wait, "GLIBC_2.3.2") X(pthread_cond_timedwait, "GLIBC_2.3.2") X(pthread_cond_clockwait, nullptr) \
  X(pthread_cond_broadcast, "GLIBC_2.3.2") X(pthread_mutex_timedlock, nullptr) X(pthread_mutex_clocklock, nullptr) \
  X(pthread_mutex_trylock, nullptr) X(pthread_create, nullptr) X(pthread_join, nullptr) X(sem_wait, nullptr) \
  X(sem_trywait, nullptr) X(sem_timedwait, nullptr) X(sem_clockwait, nullptr) X(sem_post, nullptr) X(ppoll, nullptr) \
  X(poll, nullptr) X(select, nullptr) X(pselect, nullptr) X(epoll_wait, nullptr) X(epoll_pwait, nullptr) \
  X(read, nullptr) X(readv, nullptr) X(recv, nullptr) X(recvfrom, nullptr) X(recvmsg, nullptr) X(accept, nullptr) \
  X(accept4, nullptr) X(connect, nullptr) X(open, nullptr) X(open64, nullptr) X(openat, nullptr) \
  X(openat64, nullptr) X(close, nullptr) X(dup2, nullptr) X(dup3, nullptr) X(flock, nullptr) X(fcntl, nullptr) \
  X(fcntl64, nullptr) X(lockf, nullptr) X(lockf64, nullptr) X(fopen, nullptr) X(fopen64, nullptr) X(execve, nullptr) \
  X(execvpe, nullptr) X(posix_spawn, nullptr) X(posix_spawnp, nullptr) X(waitpid, nullptr) X(wait4, nullptr) \
  X(waitid, nullptr) X(_exit, nullptr) X(quick_exit, nullptr) X(gethostname, nullptr) X(uname, nullptr) \
  X(sysconf, nullptr) X(sched_getaffinity, nullptr) X(sched_setaffinity, nullptr) X(pthread_getaffinity_np, nullptr) \
  X(pthread_setaffinity_np, nullptr) X(get_nprocs, nullptr) X(get_nprocs_conf, nullptr) X(getaddrinfo, nullptr) \
  X(gethostbyname, nullptr) X(gethostbyname2, nullptr) X(gethostbyname_r, nullptr)
// clang-format on

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"
namespace real {
#define PHANTORA_DECLARE_REAL(name, version) extern Real<decltype(&::name)> name;
PHANTORA_REAL_FUNCTIONS(PHANTORA_DECLARE_REAL)
#undef PHANTORA_DECLARE_REAL
}  // namespace real
#pragma GCC diagnostic pop

// Looks all of them up now: after a fork or vfork the loader's lock may be held by a thread that is gone.
void resolve_all();

// Is this a return address in the Python interpreter? Its condition variables serve the GIL alone, which stays in real
// time.
bool from_python(const void* return_address);

}  // namespace phantora::libc
