#include "libc/jitter.hpp"

#include <cerrno>
#include <cstdlib>

#include "client_state.hpp"

namespace phantora::libc {
namespace {

constexpr std::uint64_t kLongestNs = 3'000'000;
// Slept in pieces: a thread that has work and is merely late uses some CPU time, else the core would rightly park its
// rank.
constexpr std::uint64_t kPieceNs = 40'000;

constinit bool g_wanted = false;
constinit std::uint64_t g_seed = 0;
constinit std::atomic<std::uint64_t> g_drawn{0};

__attribute__((constructor)) void look_for_seed() {
  const char* text = std::getenv("PHANTORA_TEST_HELPER_JITTER");
  g_wanted = text != nullptr && *text != '\0';
  if (g_wanted) g_seed = std::strtoull(text, nullptr, 10);
}

}  // namespace

void helper_jitter() {
  if (!g_wanted || !client::is_virtual() || client::is_driver()) return;
  const int error = errno;
  const auto place = static_cast<std::uint64_t>(client::real_tid());
  const std::uint64_t until =
      client::real_ns(CLOCK_MONOTONIC) + client::mix_identity(g_seed ^ place << 32, g_drawn.fetch_add(1)) % kLongestNs;
  while (client::real_ns(CLOCK_MONOTONIC) < until) client::real_sleep_ns(kPieceNs);
  errno = error;
}

}  // namespace phantora::libc
