// How many records a second the engine takes in: one rank, kernels on two streams with events between them, a wait now
// and then.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "engine.hpp"

using namespace phantora;
using namespace phantora::core;

namespace {

// CPU time: a busy machine must not change the figure.
std::uint64_t cpu_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t wanted = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000'000;
  const std::string costs = argc > 2 ? argv[2] : "unit";
  const Config config =
      Config::from_text("world_size = 1\nring_slots = 4096\nhost.launch_latency = 10\ncore.costs = " + costs + "\n");
  Segment segment(config);
  Server server(segment.header().rpc_name, segment.header().rpc_token, [] {});
  Engine engine(config, segment, server);
  auto& block = segment.actor(0);
  block.pid = static_cast<std::uint32_t>(getpid());
  block.state = static_cast<std::uint32_t>(wire::ActorState::kLive);
  auto* ring = const_cast<wire::Record*>(segment.ring(0));
  std::uint64_t head = 0, sequence[3] = {0, 0, 0}, spent_ns = 0;
  while (head < wanted) {
    for (int count = 0; count < 2048; ++count, ++head) {
      wire::Record record;
      std::memset(static_cast<void*>(&record), 0, sizeof record);
      record.index = head;
      record.issue_ns = head;
      record.stream = static_cast<std::uint16_t>(1 + head / 4 % 2);
      record.stream_sequence = ++sequence[record.stream];
      if (head % 8 == 6) {
        record.type = wire::RecordType::kEventRecord;
        record.event = {static_cast<std::uint32_t>(head / 8 % 64), static_cast<std::uint32_t>(1 + head / 512)};
      } else if (head % 8 == 7) {
        record.type = wire::RecordType::kStreamWait;
        record.event = {static_cast<std::uint32_t>(head / 8 % 64), static_cast<std::uint32_t>(1 + head / 512)};
      } else {
        record.type = wire::RecordType::kKernel;
        record.kernel.name = 1 + head % 300;
        for (int axis = 0; axis < 3; ++axis) record.kernel.grid[axis] = record.kernel.block[axis] = 1;
        record.kernel.elements = 1 + head % 40;
      }
      record.check = wire::record_check(record);
      std::memcpy(static_cast<void*>(&ring[head % 4096]), static_cast<const void*>(&record), sizeof record);
    }
    block.head.store(head);
    block.host_ns.store(head);
    const std::uint64_t began = cpu_now_ns();
    engine.turn();
    spent_ns += cpu_now_ns() - began;
  }
  std::printf("%.2f million records a second of CPU time (%llu ns each)\n",
              static_cast<double>(head) * 1e3 / static_cast<double>(spent_ns),
              static_cast<unsigned long long>(spent_ns / head));
  return 0;
}
