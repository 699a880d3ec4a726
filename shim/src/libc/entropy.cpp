#include "libc/entropy.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "client_state.hpp"
#include "libc/real.hpp"
#include "raw_syscall.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace phantora::libc {
namespace {

constexpr std::size_t kDeviceBytes = 256 * 1024;  // what an opened random device holds; readers take a few bytes

}  // namespace

// Not for secrets: whoever knows the seed knows the stream.
void fill_random(void* data, std::size_t bytes) {
  auto& thread = client::t_thread;
  if (!thread.named) {
    // A thread the client did not see start: all of those share one name, in the order of their first use.
    static constinit std::atomic<std::uint64_t> strangers{0};
    thread.identity = client::mix_identity(client::g_state.identity.load() ^ 0x616e6f6e, strangers.fetch_add(1));
    thread.named = true;
  }
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const std::uint64_t word =
        client::mix_identity(client::mix_identity(thread.identity, 0x72616e64), ++thread.random_blocks);
    const std::size_t part = std::min(bytes, sizeof word);
    std::memcpy(next, &word, part);
    next += part;
    bytes -= part;
  }
}

bool is_random_device(const char* path) {
  return std::strcmp(path, "/dev/urandom") == 0 || std::strcmp(path, "/dev/random") == 0;
}

int open_random() {
  const long fd = raw_syscall(SYS_memfd_create, "random", MFD_CLOEXEC);
  if (fd < 0) {
    errno = static_cast<int>(-fd);
    return -1;
  }
  char block[4096];
  for (std::size_t done = 0; done < kDeviceBytes; done += sizeof block) {
    fill_random(block, sizeof block);
    raw_syscall(SYS_pwrite64, fd, block, sizeof block, done);
  }
  return static_cast<int>(fd);
}

}  // namespace phantora::libc

extern "C" {

ssize_t getrandom(void* data, size_t bytes, unsigned int flags) {
  if (client::is_virtual()) {
    libc::fill_random(data, bytes);
    return static_cast<ssize_t>(bytes);
  }
  const long result = phantora::raw_syscall(SYS_getrandom, data, bytes, flags);
  if (result < 0) errno = static_cast<int>(-result);
  return result < 0 ? -1 : result;
}

int getentropy(void* data, size_t bytes) {
  if (bytes > 256) {
    errno = EIO;
    return -1;
  }
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = getrandom(static_cast<char*>(data) + done, bytes - done, 0);
    if (got < 0 && errno != EINTR) return -1;
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  return 0;
}

void arc4random_buf(void* data, size_t bytes) noexcept {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = getrandom(static_cast<char*>(data) + done, bytes - done, 0);
    if (got > 0) done += static_cast<std::size_t>(got);
  }
}

std::uint32_t arc4random(void) noexcept {
  std::uint32_t value = 0;
  arc4random_buf(&value, sizeof value);
  return value;
}

std::uint32_t arc4random_uniform(std::uint32_t bound) noexcept {
  return bound == 0 ? 0 : static_cast<std::uint32_t>((static_cast<std::uint64_t>(arc4random()) * bound) >> 32);
}

// std::random_device::_M_getval() of libstdc++.so, which would ask the CPU (rdrand). Code that links libstdc++
// statically or uses the instruction itself cannot be reached.
unsigned int _ZNSt13random_device9_M_getvalEv(void*) { return arc4random(); }
// std::random_device::_M_init(const char*, size_t): not exported and never called; it stands here so that the static
// libstdc++ does not bring its own _M_getval along.
void _ZNSt13random_device7_M_initEPKcm(void*, const char*, size_t) {}

}  // extern "C"
