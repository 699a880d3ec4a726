// How a process joins: the constructor of the preloaded library, forks, and the end. All of it must also be harmless in a shell or
// a compiler that merely inherited LD_PRELOAD.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>

#include "client_state.hpp"

namespace phantora::client {
namespace {

void before_fork() {
  if (is_virtual()) g_state.forks.fetch_add(1);
}

// Registered first, so called last: after the script's own handlers.
void at_exit(int status, void*) { send_exit(status); }

__attribute__((constructor)) void start() {
  g_state.pid = static_cast<pid_t>(getpid());
  pthread_atfork(before_fork, nullptr, reset_after_fork);
  on_exit(at_exit, nullptr);
  const char* null = std::getenv("PHANTORA_NULL");
  if (null != nullptr && *null != '\0' && *null != '0') g_state.mode.store(static_cast<int>(Mode::kNull));
}

}  // namespace
}  // namespace phantora::client
