// A communicator, and what an operation on one is until its group ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "libs/bridge.hpp"
#include "libs/types.hpp"

namespace phantora::libs::nccl {

// Payloads up to here (what one rank puts in) really move between ranks; larger ones make the receiver's bytes unknown.
inline constexpr std::size_t kPayloadLimit = 64U << 10;
// Where everybody gets what all put in, floating point numbers move up to this sum: of a sharded model's parameters 256
// ranks would exchange gigabytes. Integers always do: counts and pickled objects steer the script.
inline constexpr std::size_t kGatheredLimit = 1U << 20;

struct PreMultiply {
  bool alive = false;
  wire::DataType type = wire::DataType::kNone;
  std::byte value[16] = {};            // when taken from host memory at creation
  const void* device_value = nullptr;  // else read when the collective's turn comes
};

struct Comm {
  std::uint64_t magic = 0;
  std::uint32_t id = 0;  // the core's index
  int ranks = 0, rank = 0;
  bool sized = true;  // false: null mode cannot know how a split turned out
  int ordinal = 0, node_device = 0;
  std::uint64_t taken_bytes = 0;
  std::atomic<int> async_error{abi::kNcclSuccess};
  bool aborted = false, finalized = false;
  std::uint64_t collectives = 0;  // sequence numbers, counted from 1
  std::vector<std::uint64_t> sends, receives;
  std::deque<PreMultiply> operators;  // ncclRedOp_t kNcclOpCount + index; grows while pending actions read it
};

Comm* from(void* comm);  // nullptr when it is none of ours, or destroyed
void set_last_error(const std::string& text);
const std::string& last_error();

struct Operation {
  Comm* comm = nullptr;
  wire::CollectiveKind kind{};
  wire::DataType type{};
  int reduction = 0;  // ncclRedOp_t as the caller passed it
  int peer = -1;      // root or peer
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint64_t count = 0;
  void* stream = nullptr;
  std::uint64_t sequence = 0;

  std::size_t part_bytes() const { return count * bytes_of(type); }
  std::size_t send_bytes() const;     // what this rank's contribution spans: the payload, equal on all ranks
  std::size_t receive_bytes() const;  // what this rank's result spans
  bool contributes() const;
  bool receives_data() const;
};

// group.cpp: ncclGroupStart/End. Operations and initialisations run at once outside a group, else when the outermost
// ends.
int submit(const Operation& operation);
struct Initialisation {
  int (*run)(Initialisation& self);  // fills *target
  void** target;
  std::string id, label;
  int ranks = 0, rank = 0, ordinal = 0, node_device = 0;
  Comm* parent = nullptr;
  int color = 0, key = 0;
};
int submit(Initialisation initialisation);

// payload.cpp: what becomes of the bytes. `start` is called for all operations of a group before `finish` for any.
void start_payload(const Operation& operation);
void finish_payload(const Operation& operation);

}  // namespace phantora::libs::nccl
