// Hostile rings against the whole engine: the input's bytes become records of two ranks. Some are passed as they are
// (and mostly die at the checksum); some get a running number and a check that fit, so that what lies behind is reached
// too.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "engine.hpp"

namespace {

using namespace phantora;
using namespace phantora::core;

// 0: raw. 1: number and check repaired. 2: also bounded, so that most records are good ones.
wire::Record make_record(const std::uint8_t* data, std::uint64_t index, int repair) {
  wire::Record record;
  std::memcpy(static_cast<void*>(&record), data, sizeof record);
  if (repair >= 1) record.index = index;
  if (repair >= 2) {
    record.type = static_cast<wire::RecordType>(1 + static_cast<unsigned>(record.type) % 15);
    record.device %= 2;
    record.stream %= 4;
    record.issue_ns %= 1U << 20;
    record.stream_sequence = index + 1;
    if (record.type == wire::RecordType::kKernel) {
      for (int axis = 0; axis < 3; ++axis) record.kernel.grid[axis] = record.kernel.block[axis] = 1;
      record.kernel.name |= 1;
      record.kernel.elements %= 1000;
      record.kernel.op_input_bytes = record.kernel.op_output_bytes = 0;
    } else if (record.type == wire::RecordType::kCollective) {
      auto& op = record.collective;
      op.comm = 1;
      op.peer = static_cast<std::int32_t>(static_cast<std::uint32_t>(op.peer) % 3) - 1;
      op.kind = static_cast<wire::CollectiveKind>(1 + static_cast<unsigned>(op.kind) % 11);
      op.type = wire::DataType::kFloat32;
      op.bytes %= 1000;
      op.count = op.bytes / 4;
      op.sequence %= 4;
      op.group %= 3;
      op.group_last &= 1;
    } else if (record.type >= wire::RecordType::kWait && record.type <= wire::RecordType::kElapsed) {
      record.wait.slot %= wire::kWaitSlots;
      record.wait.kind = static_cast<wire::WaitKind>(1 + static_cast<unsigned>(record.wait.kind) % 4);
      record.wait.peek &= 1;
      record.wait.event %= 4;
      record.wait.event_end %= 4;
      record.wait.generation %= 4;
      record.wait.generation_end %= 4;
    } else if (record.type == wire::RecordType::kEventRecord || record.type == wire::RecordType::kStreamWait) {
      record.event.event %= 4;
      record.event.generation %= 4;
    } else if (record.type == wire::RecordType::kSleep) {
      record.sleep.slot %= wire::kWaitSlots;
      record.sleep.until_ns %= 1U << 20;
    } else if (record.type == wire::RecordType::kMark) {
      record.mark.kind = static_cast<wire::MarkKind>(1 + static_cast<unsigned>(record.mark.kind) % 6);
    } else if (record.type == wire::RecordType::kMemcpy || record.type == wire::RecordType::kMemset) {
      record.copy.bytes %= 1000;
      record.copy.kind = wire::CopyKind::kDeviceToDevice;
    } else if (record.type == wire::RecordType::kGemm) {
      auto& op = record.gemm;
      op.m %= 100;
      op.n %= 100;
      op.k %= 100;
      op.batch %= 4;
      op.type_a = op.type_b = op.type_c = op.compute = wire::DataType::kFloat32;
    }
  }
  if (repair >= 1) record.check = wire::record_check(record);
  return record;
}

void join_communicator(Engine& engine) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Incoming message;
    message.connection = 16 + rank;
    message.frame.header.type = wire::MessageType::kCommInit;
    message.frame.header.actor = rank;
    message.frame.body = BodyWriter().text("id").u32(2).u32(rank).text("world").take();
    engine.receive(message);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Config config = Config::from_text(
      "world_size = 2\ngpus_per_node = 2\nextra_actors = 1\nring_slots = 64\ncore.costs = unit\ncore.ending_grace_ms = "
      "0\n");
  Segment segment(config);
  Server server(segment.header().rpc_name, segment.header().rpc_token, [] {});
  try {
    Engine engine(config, segment, server);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto& block = segment.actor(rank);
      block.pid = static_cast<std::uint32_t>(getpid());
      block.state = static_cast<std::uint32_t>(wire::ActorState::kLive);
      for (auto& slot : block.wait) slot.state = 1;
    }
    join_communicator(engine);
    engine.turn();
    std::uint64_t index[2] = {0, 0};
    for (; size > sizeof(wire::Record); size -= sizeof(wire::Record) + 1, data += sizeof(wire::Record) + 1) {
      const unsigned rank = data[0] & 1;
      const int repair = (data[0] >> 1) % 8 == 0 ? 0 : (data[0] >> 1) % 8 == 1 ? 1 : 2;
      auto& block = segment.actor(rank);
      if (block.head - block.tail >= 64) break;
      auto* ring = const_cast<wire::Record*>(segment.ring(rank));
      const wire::Record record = make_record(data + 1, index[rank], repair);
      std::memcpy(static_cast<void*>(&ring[index[rank] % 64]), static_cast<const void*>(&record), sizeof record);
      ++index[rank];
      block.head.store(index[rank]);
      block.host_ns.store(repair == 0 ? record.issue_ns
                                      : std::max<std::uint64_t>(block.host_ns, record.issue_ns % kLatest));
      if ((data[0] & 0x80) != 0) engine.turn();
      for (auto& slot : block.wait) {
        if (slot.state == 2) slot.state = 1;
      }
    }
    for (int turns = 0; turns < 8; ++turns) engine.turn();
    const std::atomic<bool> stop{true};
    engine.run(stop);
  } catch (const InvariantError&) {
    std::abort();  // no input may break an invariant
  }
  return 0;
}
