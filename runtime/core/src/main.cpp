// phantora-core: the simulator core. Makes the shared segment, says where it is, runs until all ranks have ended.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <exception>

#include "config.hpp"
#include "engine.hpp"
#include "segment.hpp"
#include "server.hpp"

namespace {

std::atomic<bool> stop_requested{false};
std::atomic<std::uint32_t>* doorbell = nullptr;

void on_signal(int) {
  stop_requested = true;
  if (doorbell != nullptr) doorbell->fetch_add(1);
}

constexpr int kUsage = 2, kEnvironment = 3, kBug = 5;

}  // namespace

int main(int argc, char** argv) {
  using namespace phantora::core;
  if (argc != 2) {
    std::fprintf(stderr, "usage: phantora-core CORE.CONF\n");
    return kUsage;
  }
  try {
    const Config config = Config::from_file(argv[1]);
    Segment segment(config);
    doorbell = &segment.header().doorbell;
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action{};
    action.sa_handler = on_signal;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);

    Server server(segment.header().rpc_name, segment.header().rpc_token, [&segment] {
      segment.header().doorbell.fetch_add(1, std::memory_order_seq_cst);
      if (segment.header().core_asleep.load(std::memory_order_seq_cst) != 0) futex_wake_all(segment.header().doorbell);
    });
    Engine engine(config, segment, server);
    server.start();
    std::printf("ready segment=%s rpc=%s\n", segment.path().c_str(), segment.header().rpc_name);
    std::fflush(stdout);
    return engine.run(stop_requested);
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "phantora-core: %s\n", error.what());
    return kUsage;
  } catch (const InvariantError& error) {
    std::fprintf(stderr, "phantora-core: a bug of the simulator: %s\n", error.what());
    return kBug;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "phantora-core: %s\n", error.what());
    return kEnvironment;
  }
}
