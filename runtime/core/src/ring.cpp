#include "ring.hpp"

#include <algorithm>
#include <cstring>

#include "time.hpp"

namespace phantora::core {
namespace {

using wire::CollectiveKind;
using wire::Record;
using wire::RecordType;

constexpr std::uint64_t kMostBytes = 1ULL << 50;
constexpr auto kLastDataType = wire::DataType::kFp4;
constexpr auto kLastCollective = CollectiveKind::kBarrier;
constexpr auto kLastMark = wire::MarkKind::kPhase;

bool known(wire::DataType type) { return type <= kLastDataType; }

const char* check_kernel(const wire::KernelOp& op) {
  for (int axis = 0; axis < 3; ++axis) {
    if (op.grid[axis] == 0 || op.grid[axis] > 0x7fffffffU) return "grid out of range";
    if (op.block[axis] == 0 || op.block[axis] > 1024) return "block out of range";
  }
  if (op.name == 0) return "kernel without a name";
  if (op.elements > kMostBytes || op.op_input_bytes > kMostBytes || op.op_output_bytes > kMostBytes)
    return "size out of range";
  return nullptr;
}

const char* check_gemm(const wire::GemmOp& op) {
  if (!known(op.type_a) || !known(op.type_b) || !known(op.type_c) || !known(op.compute)) return "unknown data type";
  constexpr std::uint32_t kLargest = 1U << 28;
  if (op.m > kLargest || op.n > kLargest || op.k > kLargest || op.batch > kLargest) return "matrix size out of range";
  return nullptr;
}

const char* check_collective(const wire::CollectiveOp& op) {
  if (op.kind < CollectiveKind::kAllReduce || op.kind > kLastCollective) return "unknown collective";
  if (!known(op.type)) return "unknown data type";
  if (op.comm == 0) return "communicator 0";
  if (op.bytes > kMostBytes || op.count > kMostBytes) return "size out of range";
  if (op.peer < -1) return "peer out of range";
  if (op.group_last > 1) return "group_last is neither 0 nor 1";
  return nullptr;
}

const char* check_wait(const Record& record) {
  const auto& op = record.wait;
  if (op.slot >= wire::kWaitSlots) return "wait slot out of range";
  if (op.peek > 1) return "peek is neither 0 nor 1";
  if (record.type == RecordType::kElapsed) return nullptr;
  if (op.kind < wire::WaitKind::kStream || op.kind > wire::WaitKind::kResume) return "unknown kind of wait";
  return nullptr;
}

const char* check_op(const Record& record) {
  switch (record.type) {
    case RecordType::kKernel:
      return check_kernel(record.kernel);
    case RecordType::kGemm:
      return check_gemm(record.gemm);
    case RecordType::kMemcpy:
      if (record.copy.kind < wire::CopyKind::kHostToDevice || record.copy.kind > wire::CopyKind::kHostToHost) {
        return "unknown kind of copy";
      }
      [[fallthrough]];
    case RecordType::kMemset:
      return record.copy.bytes > kMostBytes ? "size out of range" : nullptr;
    case RecordType::kEventRecord:
    case RecordType::kStreamWait:
      return nullptr;  // any event, any generation: one that was never recorded is no-op
    case RecordType::kCollective:
      return check_collective(record.collective);
    case RecordType::kWait:
    case RecordType::kQuery:
    case RecordType::kElapsed:
      return check_wait(record);
    case RecordType::kSleep:
      if (record.sleep.slot >= wire::kWaitSlots) return "wait slot out of range";
      return record.sleep.until_ns > kLatest ? "time out of range" : nullptr;
    case RecordType::kMark:
      return record.mark.kind < wire::MarkKind::kFirstForward || record.mark.kind > kLastMark ? "unknown kind of mark"
                                                                                              : nullptr;
    case RecordType::kMemory:
      return std::max({record.memory.used_bytes, record.memory.other_bytes, record.memory.context_bytes,
                       record.memory.communicator_bytes}) > kMostBytes
                 ? "size out of range"
                 : nullptr;
    case RecordType::kHostWork:
      return record.host_work.duration_ns > kLatest ? "time out of range" : nullptr;
    case RecordType::kExit:
      return nullptr;
    default:
      return "unknown record type";
  }
}

bool runs_on_stream(RecordType type) { return type >= RecordType::kKernel && type <= RecordType::kCollective; }

}  // namespace

const char* record_type_name(RecordType type) {
  constexpr const char* kNames[] = {"none",        "kernel",     "gemm",      "memcpy", "memset",  "event_record",
                                    "stream_wait", "collective", "wait",      "query",  "elapsed", "sleep",
                                    "mark",        "memory",     "host_work", "exit"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(RecordType::kCount));
  return type < RecordType::kCount ? kNames[static_cast<std::size_t>(type)] : "unknown";
}

std::string check_record(const Record& record, std::uint64_t index, const RingLimits& limits) {
  if (record.index != index) {
    return "running number " + std::to_string(record.index) + " instead of " + std::to_string(index);
  }
  if (record.check != wire::record_check(record)) return "checksum does not fit (torn or overwritten)";
  const char* wrong = nullptr;
  if (record.issue_ns > kLatest) {
    wrong = "time out of range";
  } else if (record.device >= limits.devices) {
    wrong = "device out of range";
  } else if (runs_on_stream(record.type) && record.stream_sequence == 0) {
    wrong = "op on a stream without a stream sequence";
  } else {
    wrong = check_op(record);
  }
  if (wrong == nullptr) return {};
  return std::string(record_type_name(record.type)) + " record: " + wrong;
}

RingReader::Outcome RingReader::next(Record& record) {
  if (dead_) return Outcome::kEmpty;
  if (position_ == seen_head_) {
    seen_head_ = head_.load(std::memory_order_acquire);
    if (position_ == seen_head_) return Outcome::kEmpty;
  }
  if (seen_head_ - position_ > limits_.slots) {
    error_ = "head " + std::to_string(seen_head_) + " is more than " + std::to_string(limits_.slots) + " slots past " +
             std::to_string(position_);
    dead_ = true;
    return Outcome::kMalformed;
  }
  // A hostile rank may change the record while we look: check and use one private copy.
  std::memcpy(&record, &ring_[position_ % limits_.slots], sizeof record);
  error_ = check_record(record, position_, limits_);
  if (!error_.empty()) {
    dead_ = true;
    return Outcome::kMalformed;
  }
  ++position_;
  return Outcome::kRecord;
}

}  // namespace phantora::core
