// Collectives. A member arrives when its stream reaches the call; data moves once all members are there; the end
// follows from the cost model. Calls of one group are a unit: it arrives as a whole and its stream goes on when all of
// it has ended.
#include <algorithm>

#include "engine.hpp"

namespace phantora::core {

using wire::CollectiveKind;

namespace {

constexpr std::uint64_t kCommSource = 1ULL << 63;

bool is_pair(CollectiveKind kind) { return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv; }

}  // namespace

const char* collective_name(CollectiveKind kind) {
  constexpr const char* kNames[] = {"none",       "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                    "all_to_all", "send",       "recv",       "gather",         "scatter",   "barrier"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<const Instance*> Communicator::open_collectives() const {
  std::vector<const Instance*> open;
  for (const auto& [sequence, instance] : collectives) {
    if (instance->start == kNever) open.push_back(instance.get());
  }
  std::sort(open.begin(), open.end(), [](const Instance* a, const Instance* b) { return a->sequence < b->sequence; });
  return open;
}

Attendance Communicator::attendance(const Instance& instance) const {
  Attendance there;
  for (std::size_t member = 0; member < instance.units.size(); ++member) {
    const std::uint32_t rank = ranks[instance.pair ? (member == 0 ? instance.from : instance.to) : member];
    (instance.units[member] != nullptr ? there.in : there.missing).push_back(rank);
    if (instance.units[member] != nullptr) there.op = collective_name(instance.op(member).op.kind);
  }
  return there;
}

void Engine::on_collective(Actor& actor, const wire::Record& record, Stream& stream, Instant issue) {
  wire::CollectiveOp op = record.collective;
  const auto malformed = [&](const std::string& why) {
    fail_actor(actor, "malformed record in slot " + std::to_string(record.index % header_.ring_slots) +
                          ": collective record: " + why);
  };
  Communicator* comm = comm_of(op.comm);
  if (comm == nullptr) return malformed("communicator " + std::to_string(op.comm) + " does not exist");
  const auto member_at = std::find(comm->members.begin(), comm->members.end(), &actor);
  if (member_at == comm->members.end())
    return malformed("this rank is no member of communicator " + std::to_string(op.comm));
  const auto member = static_cast<std::uint32_t>(member_at - comm->members.begin());
  if (op.peer >= static_cast<std::int32_t>(comm->members.size())) return malformed("peer out of range");
  if (is_pair(op.kind) && op.peer < 0) return malformed("send or recv without a peer");

  Instance* instance = instance_for(*comm, member, op);
  const std::size_t place = instance->pair ? (op.kind == CollectiveKind::kSend ? 0 : 1) : member;
  if (instance->units[place] != nullptr)
    return malformed("number " + std::to_string(op.sequence) + " was used before on this communicator");

  Unit* unit = nullptr;
  if (op.group != 0) {
    Unit*& open = actor.open_units[op.group];
    if (open == nullptr) {
      open = new_unit();
      open->group = ++actor.groups;
    }
    unit = open;
  } else {
    unit = new_unit();
  }
  unit->actor = &actor;
  UnitOp part;
  part.instance = instance;
  part.op = op;
  part.shape = shapes_.intern(record);
  part.member = member;
  part.stream = &stream;
  part.issue = issue;
  part.sequence = record.stream_sequence;
  instance->units[place] = unit;
  instance->which[place] = static_cast<std::uint32_t>(unit->ops.size());
  ++instance->issued;
  ++unit->instances_left;
  unit->ops.push_back(part);

  if (std::find(unit->streams.begin(), unit->streams.end(), &stream) == unit->streams.end()) {
    unit->streams.push_back(&stream);
    ++unit->streams_to_reach;
    StreamOp entry;
    entry.type = wire::RecordType::kCollective;
    entry.issue = issue;
    entry.earliest = issue + latency_;
    entry.sequence = record.stream_sequence;
    entry.unit = unit;
    stream.pending.push_back(entry);
  }
  // The unit cannot begin before its last call was made.
  unit->arrival = later(unit->arrival, issue + latency_);
  if (op.group == 0 || op.group_last != 0) {
    unit->closed = true;
    if (op.group != 0) actor.open_units.erase(op.group);
  }
  for (Stream* each : unit->streams) settle(*each);
  settle_all();
}

Unit* Engine::new_unit() {
  auto unit = std::make_unique<Unit>();
  Unit* made = unit.get();
  units_.emplace(made, std::move(unit));
  return made;
}

Instance* Engine::instance_for(Communicator& comm, std::uint32_t member, const wire::CollectiveOp& op) {
  std::unique_ptr<Instance>* slot = nullptr;
  const bool pair = is_pair(op.kind);
  const auto peer = static_cast<std::uint32_t>(op.peer);
  const std::uint32_t from = op.kind == CollectiveKind::kSend ? member : peer;
  const std::uint32_t to = op.kind == CollectiveKind::kSend ? peer : member;
  slot = pair ? &comm.pairs[{from, to, op.sequence}] : &comm.collectives[op.sequence];
  if (*slot == nullptr) {
    auto instance = std::make_unique<Instance>();
    instance->comm = comm.id;
    instance->pair = pair;
    instance->from = from;
    instance->to = to;
    instance->sequence = op.sequence;
    instance->expected = pair ? 2 : static_cast<std::uint32_t>(comm.members.size());
    instance->units.resize(instance->expected);
    instance->which.resize(instance->expected);
    *slot = std::move(instance);
  }
  return slot->get();
}

void Engine::reach(Unit& unit, Stream& stream, Instant at) {
  auto& front = stream.pending.front();
  if (front.type == wire::RecordType::kCollective) {
    front.type = wire::RecordType::kNone;  // reached: counted once
    --unit.streams_to_reach;
    unit.arrival = later(unit.arrival, at);
  }
  if (unit.streams_to_reach == 0 && unit.closed && !unit.arrived) arrive(unit);
}

void Engine::arrive(Unit& unit) {
  unit.arrived = true;
  if (unit.actor == actors_[0].get()) {
    for (const UnitOp& part : unit.ops)
      breakdown_.begin_communication(unit.arrival, traffic_key(part.op.comm, part.op.kind));
  }
  for (const UnitOp& part : unit.ops) {
    Instance& instance = *part.instance;
    instance.arrival = later(instance.arrival, unit.arrival);
    if (++instance.arrived < instance.expected) continue;
    // Send/recv: its two ends are part of the source, so that keys never meet.
    const std::uint64_t source =
        kCommSource | static_cast<std::uint64_t>(instance.comm) << 42 |
        (instance.pair ? 1ULL << 41 | static_cast<std::uint64_t>(instance.from) << 20 | instance.to : 0);
    timeline_.push({later(instance.arrival, timeline_.now()), EventKind::kCollectiveStart, source, instance.sequence,
                    [this, &instance] { start_instance(instance); }, nullptr});
  }
}

bool Engine::agrees(const Instance& instance) {
  if (instance.pair) {
    if (instance.issued < 2) return true;
    const auto& sent = instance.op(0).op;
    const auto& received = instance.op(1).op;
    return sent.bytes == received.bytes;
  }
  const wire::CollectiveOp* first = nullptr;
  for (std::size_t member = 0; member < instance.units.size(); ++member) {
    if (instance.units[member] == nullptr) continue;
    const auto& op = instance.op(member).op;
    if (first == nullptr) first = &op;
    if (op.kind != first->kind || op.type != first->type || op.count != first->count ||
        op.reduction != first->reduction || op.peer != first->peer) {
      return false;
    }
  }
  return true;
}

Duration Engine::cost_of(Communicator& comm, Instance& instance, cost::Cost* cost) {
  // Calls of one group share the links: each is costed with all bytes that its unit moves the same way, so that they
  // end together, as they do inside one kernel.
  const UnitOp& first = instance.op(0);
  wire::CollectiveOp op = first.op;
  std::uint64_t bytes = 0;
  for (std::size_t member = 0; member < instance.units.size(); ++member) {
    bytes = std::max(bytes, instance.units[member]->bytes(comm.id, instance.op(member).op.kind));
  }
  if (bytes != op.bytes && op.bytes != 0) {
    op.count = static_cast<std::uint64_t>(static_cast<__uint128_t>(op.count) * bytes / op.bytes);
    op.bytes = bytes;
  }
  *cost = costs_->collective(op, comm.ranks, comm.ranks[instance.pair ? instance.from : 0]);
  return cost->duration_ns;
}

void Engine::start_instance(Instance& instance) {
  Communicator& comm = *comms_[instance.comm];
  const Instant now = timeline_.now();
  instance.start = now;
  if (!agrees(instance)) {
    mismatch_ = describe_instance(comm, instance);
    end_run("mismatch",
            "the ranks of group '" + comm.label + "' disagree on collective #" + std::to_string(instance.sequence));
    return;
  }
  cost::Cost cost;
  const Duration duration = cost_of(comm, instance, &cost);
  for (Unit* unit : instance.units) unit->start = earlier(unit->start, now);
  busy_by_source_[static_cast<int>(cost.source)] += duration * instance.expected;
  spread_weight_ += static_cast<__uint128_t>(cost.spread * 1e6 + 0.5) * duration * instance.expected;
  moving_since_.insert(now);
  const std::uint64_t source =
      kCommSource | static_cast<std::uint64_t>(instance.comm) << 42 |
      (instance.pair ? 1ULL << 41 | static_cast<std::uint64_t>(instance.from) << 20 | instance.to : 0);
  timeline_.push({now + duration, EventKind::kCollectiveEnd, source, instance.sequence,
                  [this, &instance] { end_instance(instance, timeline_.now()); }, nullptr});
}

void Engine::end_instance(Instance& instance, Instant end) {
  const std::vector<Unit*> units = instance.units;
  std::vector<Unit*> finished;
  for (Unit* unit : units) {
    unit->end = later(unit->end, end);
    if (--unit->instances_left == 0) finished.push_back(unit);
  }
  // What other units of a group still wait for keeps the log open from their start.
  ended_.push_back(&instance);
  for (Unit* unit : finished) finish_unit(*unit);
  release_ended();
}

void Engine::finish_unit(Unit& unit) {
  Actor& actor = *unit.actor;
  actor.communication_ns += unit.end - unit.arrival;
  std::vector<std::uint64_t> counted;
  for (const UnitOp& part : unit.ops) {
    LogEntry entry;
    entry.start = part.instance->start;
    entry.end = unit.end;
    entry.issue = part.issue;
    entry.source = part.stream->source;
    entry.order = log_.order_of(part.stream->source);
    entry.sequence = part.sequence;
    entry.shape = part.shape;
    entry.extra[0] = part.op.sequence;
    entry.extra[1] = unit.group;
    entry.extra[2] = part.instance->start - std::min(unit.arrival, part.instance->start);
    log_.add(entry);
    if (&actor == actors_[0].get()) {
      const std::uint64_t key = traffic_key(part.op.comm, part.op.kind);
      breakdown_.end_communication(unit.arrival, unit.end, key);
      Traffic& traffic = traffic_[key];
      ++traffic.calls;
      traffic.bytes += part.op.bytes;
      // A unit's time counts once for each kind of op in it.
      if (std::find(counted.begin(), counted.end(), key) == counted.end()) {
        counted.push_back(key);
        traffic.time += unit.end - unit.arrival;
      }
    }
  }
  for (Stream* stream : unit.streams) {
    stream->close_steps(stream->pending.front().sequence);
    ++stream->work.ops;
    stream->work.communication_ns += unit.end - unit.arrival;
    stream->work.late_ns += later(unit.start, unit.arrival) - unit.arrival;
    stream->pending.pop_front();
    stream->tail = unit.end;
    stream->resolved = stream->pending.empty() ? stream->issued : stream->pending.front().sequence - 1;
    if (!stream->dirty) {
      stream->dirty = true;
      dirty_.push_back(stream);
    }
    settle(*stream);
    wake_stream_waiters(*stream);
  }
  done_units_.push_back(&unit);
}

// An instance lives until all units it is part of are finished, because they log its start.
void Engine::release_ended() {
  for (Unit* unit : done_units_) {
    for (const UnitOp& part : unit->ops) {
      const bool receives = part.op.kind == CollectiveKind::kRecv;
      part.instance->units[part.instance->pair ? (receives ? 1 : 0) : part.member] = nullptr;
    }
    units_.erase(unit);
  }
  done_units_.clear();
  std::erase_if(ended_, [this](Instance* instance) {
    if (std::any_of(instance->units.begin(), instance->units.end(), [](const Unit* unit) { return unit != nullptr; }))
      return false;
    moving_since_.erase(moving_since_.find(instance->start));
    Communicator& comm = *comms_[instance->comm];
    if (instance->pair) {
      comm.pairs.erase({instance->from, instance->to, instance->sequence});
    } else {
      comm.collectives.erase(instance->sequence);
    }
    return true;
  });
}

}  // namespace phantora::core
