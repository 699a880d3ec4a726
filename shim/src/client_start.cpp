// How a process joins: the constructor of the preloaded library, forks, and the end. All of it must also be harmless in
// a shell or a compiler that merely inherited LD_PRELOAD.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "client_state.hpp"
#include "libc/files.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"

namespace phantora::client {
namespace {

void before_fork() {
  if (is_virtual()) g_state.forks.fetch_add(1);
}

void in_child() {
  reset_after_fork();
  libc::reset_timers_after_fork();
  libc::reset_locks_after_fork();
}

// Registered first, so called last: after the script's own handlers and after destructors of other libraries' statics.
void at_exit(int status, void*) { send_exit(status); }

// "<clock ns>:<identity>", put into the environment by the exec wrappers of the parent.
void start_detached() {
  const char* rank_text = std::getenv("PHANTORA_RANK");
  const char* path = std::getenv("PHANTORA_SEGMENT");
  if (rank_text == nullptr || path == nullptr || !map_segment(path)) return;
  const unsigned long rank = std::strtoul(rank_text, nullptr, 10);
  if (rank >= g_state.header->world_size) return;
  std::uint64_t clock_ns = actor_block(static_cast<std::uint32_t>(rank)).host_ns.load();
  std::uint64_t identity = mix_identity(g_state.header->seed ^ 0x5eed, rank);
  if (const char* text = std::getenv("PHANTORA_CHILD_CLOCK")) {
    char* end = nullptr;
    clock_ns = std::strtoull(text, &end, 10);
    if (*end == ':') identity = std::strtoull(end + 1, nullptr, 16);
  }
  libc::resolve_all();
  detach(static_cast<int>(rank), clock_ns, identity);
}

__attribute__((constructor)) void start() {
  g_state.pid = static_cast<pid_t>(getpid());
  pthread_atfork(before_fork, nullptr, in_child);
  on_exit(at_exit, nullptr);
  const char* null = std::getenv("PHANTORA_NULL");
  if (null != nullptr && *null != '\0' && *null != '0') {
    g_state.mode.store(static_cast<int>(Mode::kNull));
  } else {
    start_detached();
  }
}

}  // namespace
}  // namespace phantora::client
