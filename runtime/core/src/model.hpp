// What the engine knows: actors, their streams and events, units of communication, and what waits for what.
// Plain data; the rules are in streams.cpp, waits.cpp, collectives.cpp and engine.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "phantora/wire.hpp"
#include "ring.hpp"
#include "time.hpp"

namespace phantora::core {

struct Actor;
struct Stream;
struct Unit;
struct Instance;

// A thread that waits for GPU work: for one op of a stream, a recorded event, or all streams of a device.
struct Wait {
  enum class Purpose : std::uint8_t { kHost, kElapsed, kStepEnd };
  Actor* actor = nullptr;
  Purpose purpose = Purpose::kHost;
  std::uint32_t slot = 0;
  bool peek = false;
  Instant issue = 0;
  Instant completion = 0;       // latest of what has completed so far
  std::uint32_t remaining = 0;  // what has not
  Instant from = 0, to = 0;     // kElapsed: completions of the two events
  std::uint64_t id = 0;         // kStepEnd: the mark; kHost: the push it blocks
};

struct StreamWaiter {
  std::uint64_t sequence;
  Wait* wait;
};

struct EventWaiter {
  Wait* wait;
  Instant* completion;  // also written there, if given
};

// One record of an event; a new one replaces it once it is complete.
struct Recording {
  std::uint32_t event = 0, generation = 0;
  std::uint32_t source = 0;  // of the stream that recorded it
  std::uint64_t sequence = 0;
  Instant completion = kNever;
  std::vector<Stream*> streams;
  std::vector<EventWaiter> waits;
};

struct Event {
  std::vector<std::shared_ptr<Recording>> recordings;  // oldest first
};

struct StreamOp {
  wire::RecordType type = wire::RecordType::kNone;
  Instant issue = 0;
  Instant earliest = 0;  // issue + launch latency
  std::uint64_t sequence = 0;
  std::uint32_t shape = 0;
  std::shared_ptr<Recording> recording;  // event record; stream wait (null: never recorded, nothing to wait for)
  Unit* unit = nullptr;
  bool holds_log = false;  // a stream wait that has begun and does not know its end
};

// What a stream did in one step.
struct StreamWork {
  std::uint64_t ops = 0;
  Duration compute_ns = 0;        // kernels, library calls, copies
  Duration communication_ns = 0;  // from a collective's arrival to its end
  Duration late_ns = 0;           // the part of that before the last member was there
};

struct Stream {
  Actor* actor = nullptr;
  std::uint32_t device = 0;
  std::uint16_t ordinal = 0;
  std::uint32_t source = 0;  // in the op log
  std::uint64_t issued = 0;  // last sequence seen
  std::uint64_t resolved = 0;
  Instant tail = 0;  // completion of the last resolved op
  std::deque<StreamOp> pending;
  std::vector<StreamWaiter> waiters;
  bool queued = false, dirty = false;

  // For the live view. Ops resolve in order, so a step's work is whole once its last op is resolved.
  StreamWork work, last_step;
  std::deque<std::uint64_t> step_ends;  // sequence of the last op of each step that is not whole
  // Closes the steps that end before op `sequence`.
  void close_steps(std::uint64_t sequence) {
    for (; !step_ends.empty() && step_ends.front() < sequence; step_ends.pop_front())
      last_step = std::exchange(work, {});
  }
};

struct Actor {
  std::uint32_t index = 0;
  std::uint32_t rank = 0, child = 0;  // child 0: the rank itself
  std::uint32_t pid = 0;
  wire::ActorBlock* block = nullptr;
  std::unique_ptr<RingReader> ring;
  enum class State : std::uint8_t { kAbsent, kExpected, kLive, kExited } state = State::kAbsent;

  // Conservative time: while `running` it may issue at `bound` or later; else it waits in the core.
  bool running = false;
  Instant published = 0;  // H as read before the last drain
  Instant floor = 0;      // resume times and forced events: it cannot issue before
  Instant last_issue = 0;
  std::uint64_t pushes = 0;       // each wait or request names the push that it blocks
  std::uint64_t event_count = 0;  // per-source sequence of heap events
  std::uint64_t host_sequence = 0;
  std::uint32_t host_source = 0;
  std::string doing;  // what it waits for, in words
  Instant bound() const { return running ? later(published, floor) : kNever; }

  std::vector<std::unique_ptr<Stream>> legacy;   // by device
  std::vector<std::unique_ptr<Stream>> streams;  // by ordinal
  std::unordered_map<std::uint32_t, Event> events;
  std::unordered_map<std::uint32_t, Unit*> open_units;  // by group
  std::uint64_t groups = 0;

  // For the live view: sums so far, which may overlap.
  Duration compute_ns = 0, communication_ns = 0, waited_ns = 0;
  Instant step_begun = kNever;  // on its host clock; never: no step yet
  Duration step_ns = 0;         // of the last whole one

  // Exit and memory.
  std::int32_t exit_status = 0;
  bool exit_seen = false;
  std::uint64_t memory_peak = 0;   // of the GPU that is this rank's, whoever allocates there
  std::uint64_t memory_other = 0;  // of it, what was not cudaMalloc'ed; of that:
  std::uint64_t memory_context = 0, memory_communicators = 0;
  std::uint64_t ops = 0;
  // Steps.
  bool stepped = false;  // an optimizer step since the last backward
  std::uint64_t steps = 0;
  Instant fired_deadline = kNever;  // of a wait outside: woken for it already

  // The latest that is known of its host clock; once it has ended, where it stood then.
  Instant latest_clock() const { return exit_seen ? last_issue : later(later(published, floor), last_issue); }
};

// One member's part in one or several collectives that start and end together.
struct UnitOp {
  Instance* instance = nullptr;
  wire::CollectiveOp op{};
  std::uint32_t shape = 0;
  std::uint32_t member = 0;
  Stream* stream = nullptr;
  Instant issue = 0;
  std::uint64_t sequence = 0;
};

struct Unit {
  Actor* actor = nullptr;
  std::uint64_t group = 0;  // n-th of this actor; 0 none
  std::vector<UnitOp> ops;
  std::vector<Stream*> streams;
  std::uint32_t streams_to_reach = 0;
  std::uint32_t instances_left = 0;
  bool closed = false, arrived = false;
  Instant arrival = 0, start = kNever, end = 0;
  std::uint64_t bytes(std::uint32_t comm, wire::CollectiveKind kind) const {
    std::uint64_t sum = 0;
    for (const UnitOp& op : ops) sum += op.op.comm == comm && op.op.kind == kind ? op.op.bytes : 0;
    return sum;
  }
};

// One collective (or one send with its receive) on a communicator.
struct Instance {
  std::uint32_t comm = 0;
  std::uint32_t from = 0, to = 0;  // send/recv
  bool pair = false;
  std::uint64_t sequence = 0;
  std::uint32_t expected = 0, issued = 0, arrived = 0;
  std::vector<Unit*> units;          // by member; for a pair: 0 the sender, 1 the receiver
  std::vector<std::uint32_t> which;  // index of the op in its unit
  Instant arrival = 0, start = kNever;
  const UnitOp& op(std::size_t member) const { return units[member]->ops[which[member]]; }
};

// Who is there for a collective, by world rank, and what it is called.
struct Attendance {
  std::vector<std::uint32_t> in, missing;
  const char* op = "collective";
};

struct Communicator {
  std::uint32_t id = 0;
  std::string label;
  std::vector<Actor*> members;
  std::vector<std::uint32_t> ranks;  // world ranks by member
  std::unordered_map<std::uint64_t, std::unique_ptr<Instance>> collectives;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::unique_ptr<Instance>> pairs;
  std::uint32_t destroyed = 0;

  // Collectives that have not begun, in order: members wait for the first, the others are queued behind it.
  std::vector<const Instance*> open_collectives() const;
  Attendance attendance(const Instance& instance) const;
};

const char* collective_name(wire::CollectiveKind kind);

}  // namespace phantora::core
