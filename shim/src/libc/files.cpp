// Locks and exclusive creation of files, in (H, rank) order (rule 8): the core decides who is first, then the real call
// is made.
#include "libc/files.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "client_state.hpp"
#include "libc/entropy.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"
#include "message.hpp"
#include "raw_syscall.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;
namespace wire = phantora::wire;

namespace {

constexpr std::uint32_t kHeldLocks = 64;
constexpr std::size_t kKeyBytes = 96;

struct HeldLock {
  int descriptor;  // + 1; 0 free
  char key[kKeyBytes];
};
constinit HeldLock g_held[kHeldLocks] = {};
constinit std::atomic<std::uint32_t> g_held_count{0};
constinit client::SpinLock g_held_lock;

// Names the file (and range) alike in all processes.
bool make_key(int fd, const char* what, std::int64_t start, std::int64_t length, char (&key)[kKeyBytes]) {
  struct stat status;
  if (phantora::raw_syscall(SYS_fstat, fd, &status) != 0) return false;
  std::snprintf(key, sizeof key, "%s:%llu:%llu:%lld:%lld", what, static_cast<unsigned long long>(status.st_dev),
                static_cast<unsigned long long>(status.st_ino), static_cast<long long>(start),
                static_cast<long long>(length));
  return true;
}

// False: somebody else has it (only with `attempt`).
bool take(const char* key, bool shared, bool attempt) {
  client::charge(wire::CallKind::kFileLock);
  client::Body body;
  body.string(key).u8(shared ? 1 : 0).u8(attempt ? 1 : 0).u64(wire::kUnresolved);
  std::vector<std::byte> reply;
  const auto status = client::request(wire::MessageType::kLock, body.span(), reply);
  client::Reader reader(reply);
  return status == wire::Status::kOk && reader.u8() != 0;
}

void give_back(const char* key) {
  client::charge(wire::CallKind::kFileLock);
  client::Body body;
  body.string(key);
  std::vector<std::byte> reply;
  client::request(wire::MessageType::kUnlock, body.span(), reply);
}

// True if it was held: then `key` tells which.
bool forget(int fd, const char* wanted, char (&key)[kKeyBytes]) {
  if (g_held_count.load(std::memory_order_relaxed) == 0) return false;
  client::SpinGuard guard(g_held_lock);
  for (auto& held : g_held) {
    if (held.descriptor != fd + 1 || (wanted != nullptr && std::strcmp(held.key, wanted) != 0)) continue;
    std::memcpy(key, held.key, sizeof key);
    held.descriptor = 0;
    g_held_count.fetch_sub(1);
    return true;
  }
  return false;
}

void remember(int fd, const char* key) {
  client::SpinGuard guard(g_held_lock);
  HeldLock* free = nullptr;
  for (auto& held : g_held) {
    if (held.descriptor == fd + 1 && std::strcmp(held.key, key) == 0) return;
    if (held.descriptor == 0 && free == nullptr) free = &held;
  }
  if (free == nullptr) return;
  free->descriptor = fd + 1;
  std::strncpy(free->key, key, sizeof free->key - 1);
  g_held_count.fetch_add(1);
}

// A driving thread of this very process (a vfork child shares the memory, not the identity).
bool ordered() { return client::is_driver() && phantora::raw_syscall(SYS_getpid) == client::g_state.pid; }

void release_all(int fd) {
  char key[kKeyBytes];
  while (forget(fd, nullptr, key)) give_back(key);
}

// `call(blocking)` is the real lock.
template <typename Call>
int lock_in_order(int fd, const char* what, std::int64_t start, std::int64_t length, bool shared, bool attempt,
                  int busy, Call call) {
  char key[kKeyBytes];
  if (!make_key(fd, what, start, length, key)) return call();
  if (!take(key, shared, attempt)) {
    errno = busy;
    return -1;
  }
  int result = 0;
  {
    // Processes outside the order (children, helper threads) may still hold it.
    libc::Outside outside;
    result = call();
  }
  const int error = errno;
  if (result == 0) {
    remember(fd, key);
  } else {
    give_back(key);
  }
  errno = error;
  return result;
}

template <typename Call>
int unlock_in_order(int fd, const char* what, std::int64_t start, std::int64_t length, Call call) {
  char wanted[kKeyBytes];
  char key[kKeyBytes];
  const bool named = make_key(fd, what, start, length, wanted);
  const int result = call();
  const int error = errno;
  // Unlocking everything ends the locks on parts too.
  const bool all = start == 0 && length == 0;
  while (result == 0 && named && forget(fd, all ? nullptr : wanted, key)) give_back(key);
  errno = error;
  return result;
}

int control(int fd, int command, void* argument, int (*real)(int, int, ...)) {
  const bool lock = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
  if (!lock || !ordered()) return real(fd, command, argument);
  const auto& range = *static_cast<const struct flock*>(argument);
  const auto call = [=] { return real(fd, command, argument); };
  // Positions relative to the file offset are made absolute, so that all ranks name a range alike.
  std::int64_t start = range.l_start;
  if (range.l_whence == SEEK_CUR) start += phantora::raw_syscall(SYS_lseek, fd, 0, SEEK_CUR);
  if (range.l_type == F_UNLCK) return unlock_in_order(fd, "range", start, range.l_len, call);
  const bool attempt = command == F_SETLK || command == F_OFD_SETLK;
  return lock_in_order(fd, "range", start, range.l_len, range.l_type == F_RDLCK, attempt, EAGAIN, call);
}

template <typename Offset>
int lockf_in_order(int fd, int command, Offset length, int (*real)(int, int, Offset)) {
  if (command == F_TEST || !ordered()) return real(fd, command, length);
  const auto call = [=] { return real(fd, command, length); };
  const std::int64_t start = phantora::raw_syscall(SYS_lseek, fd, 0, SEEK_CUR);
  if (command == F_ULOCK) return unlock_in_order(fd, "range", start, length, call);
  return lock_in_order(fd, "range", start, length, false, command == F_TLOCK, EAGAIN, call);
}

// Exclusive creation is how lock files are made.
void order_creation(const char* path, int flags) {
  constexpr int kExclusive = O_CREAT | O_EXCL;
  if ((flags & kExclusive) != kExclusive || !ordered()) return;
  client::charge(wire::CallKind::kFileLock);
  client::Body body;
  body.string(std::string("create ") + path);
  std::vector<std::byte> reply;
  client::request(wire::MessageType::kOrder, body.span(), reply);
}

// -1: not a random device, go on.
template <typename Call>
int open_in_order(const char* path, int flags, Call call) {
  if (!client::is_virtual()) return call();
  if (path[0] == '/' && libc::is_random_device(path)) return libc::open_random();
  order_creation(path, flags);
  return call();
}

bool needs_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

mode_t take_mode(int flags, std::va_list arguments) { return needs_mode(flags) ? va_arg(arguments, mode_t) : 0; }

FILE* open_stream(const char* path, const char* mode, FILE* (*real)(const char*, const char*)) {
  if (!client::is_virtual() || path == nullptr || !libc::is_random_device(path)) return real(path, mode);
  const int fd = libc::open_random();
  return fd < 0 ? nullptr : fdopen(fd, "r");
}

}  // namespace

void phantora::libc::reset_locks_after_fork() {
  g_held_lock.reset();
  g_held_count.store(0);
  for (auto& held : g_held) held.descriptor = 0;
}

#define PHANTORA_MODE(flags)                       \
  std::va_list arguments;                          \
  va_start(arguments, flags);                      \
  const mode_t mode = take_mode(flags, arguments); \
  va_end(arguments)

extern "C" {

int open(const char* path, int flags, ...) {
  PHANTORA_MODE(flags);
  return open_in_order(path, flags, [=] { return libc::real::open(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  PHANTORA_MODE(flags);
  return open_in_order(path, flags, [=] { return libc::real::open64(path, flags, mode); });
}
int openat(int folder, const char* path, int flags, ...) {
  PHANTORA_MODE(flags);
  return open_in_order(path, flags, [=] { return libc::real::openat(folder, path, flags, mode); });
}
int openat64(int folder, const char* path, int flags, ...) {
  PHANTORA_MODE(flags);
  return open_in_order(path, flags, [=] { return libc::real::openat64(folder, path, flags, mode); });
}
int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open64(path, flags); }

FILE* fopen(const char* path, const char* mode) { return open_stream(path, mode, libc::real::fopen.get()); }
FILE* fopen64(const char* path, const char* mode) { return open_stream(path, mode, libc::real::fopen64.get()); }

int close(int fd) {
  if (g_held_count.load(std::memory_order_relaxed) != 0 && ordered()) {
    // The real lock first: whom the core lets in next must find it free.
    const int result = libc::real::close(fd);
    const int error = errno;
    release_all(fd);
    errno = error;
    return result;
  }
  return libc::real::close(fd);
}

int dup2(int fd, int target) noexcept {
  const int result = libc::real::dup2(fd, target);
  if (result >= 0 && fd != target && g_held_count.load(std::memory_order_relaxed) != 0 && ordered())
    release_all(target);
  return result;
}

int dup3(int fd, int target, int flags) noexcept {
  const int result = libc::real::dup3(fd, target, flags);
  if (result >= 0 && g_held_count.load(std::memory_order_relaxed) != 0 && ordered()) release_all(target);
  return result;
}

int flock(int fd, int operation) noexcept {
  if (!ordered()) return libc::real::flock(fd, operation);
  const auto call = [=] { return libc::real::flock(fd, operation); };
  const int kind = operation & ~LOCK_NB;
  if (kind == LOCK_UN) return unlock_in_order(fd, "flock", 0, 0, call);
  return lock_in_order(fd, "flock", 0, 0, kind == LOCK_SH, (operation & LOCK_NB) != 0, EWOULDBLOCK, call);
}

int fcntl(int fd, int command, ...) {
  std::va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (!client::is_actor()) return libc::real::fcntl(fd, command, argument);
  return control(fd, command, argument, libc::real::fcntl.get());
}

int fcntl64(int fd, int command, ...) {
  std::va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (!client::is_actor()) return libc::real::fcntl64(fd, command, argument);
  return control(fd, command, argument, libc::real::fcntl64.get());
}

int lockf(int fd, int command, off_t length) { return lockf_in_order(fd, command, length, libc::real::lockf.get()); }
int lockf64(int fd, int command, off64_t length) {
  return lockf_in_order(fd, command, length, libc::real::lockf64.get());
}

}  // extern "C"
