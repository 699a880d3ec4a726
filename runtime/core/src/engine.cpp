#include "engine.hpp"

#include <algorithm>

namespace phantora::core {

using wire::RecordType;

Engine::Engine(const Config& config, Segment& segment, Server& server)
    : config_(config),
      segment_(segment),
      server_(server),
      header_(segment.constants()),
      shared_(segment.header()),
      latency_(segment.header().launch_latency_ns),
      costs_(make_costs(config, names_)),
      shapes_(*costs_),
      log_(static_cast<int>(config.get_i64("oplog_fd", -1)), shapes_, names_),
      events_(config.has("out_dir") ? config.get("out_dir") + "/events.jsonl" : ""),
      stores_(*this),
      locks_(*this),
      broker_(*this),
      host_messages_(*this) {
  oom_marks_ = Json::array();
  for (std::uint32_t index = 0; index < header_.actor_count; ++index) {
    auto actor = std::make_unique<Actor>();
    actor->index = actor->rank = index;
    actor->block = &segment_.actor(index);
    actor->ring = std::make_unique<RingReader>(segment_.ring(index), actor->block->head, actor->block->tail,
                                               RingLimits{header_.ring_slots, header_.gpus_per_node});
    if (index < header_.world_size) {
      // Every rank holds time back from the beginning, wherever its process is.
      actor->state = Actor::State::kExpected;
      actor->running = true;
      actor->host_source = log_.add_source({index, 0, 0, 0, 0, 0});
      active_.push_back(actor.get());
    }
    actors_.push_back(std::move(actor));
  }
}

Engine::~Engine() = default;

int Engine::run(const std::atomic<bool>& stop) {
  last_activity_ = quiet_since_ = real_now_ns();
  events_.write(EventStream::line("run", 0)
                    .set("schema", 1)
                    .set("world_size", header_.world_size)
                    .set("gpus_per_node", header_.gpus_per_node)
                    .set("gpu", config_.has("gpu.name") ? config_.get("gpu.name") : "")
                    .set("capacity_bytes", header_.gpu.total_bytes)
                    .set("clock", config_.has("clock") ? config_.get("clock") : "")
                    .set("steps", config_.has("steps") ? config_.get("steps") : "all")
                    .set("warmup", config_.get_u64("warmup", 1)));
  while (!stop && !everyone_gone()) {
    if (turn()) {
      quiet_since_ = last_activity_ = real_now_ns();
      doorbell_sleep_ns_ = 0;
      idle_looks_ = 0;
      next_look_ = look_pause_ns_ = outside_since_ = 0;
    } else {
      look_when_stuck();
      rest();
    }
  }
  if (stop && !ending_ && !everyone_gone()) end_run("stopped", "the run was stopped from outside");
  shared_.run_state.store(2, std::memory_order_release);
  answer_everyone();
  advance_outputs(true);
  log_.finish();
  write_report();
  show_details();
  show_ranks(real_now_ns());
  events_.write(EventStream::line("kernels", global_).set("kernels", kernels_json(false, 16)));
  events_.write(EventStream::line("end", global_)
                    .set("verdict", verdict_)
                    .set("message", message_)
                    .set("hang", hang_)
                    .set("mismatch", mismatch_));
  events_.flush();
  return 0;
}

bool Engine::turn() {
  bool progress = take_requests();
  read_clocks();  // before the drain: a record that is not yet there was issued at this H or later
  progress = drain_all() || progress;
  settle_all();
  progress = process_events() || progress;
  publish_streams();
  publish_time();
  advance_outputs(false);
  upkeep();
  return progress;
}

void Engine::read_clocks() {
  std::uint64_t sum = 0;
  for (Actor* actor : active_) {
    if (actor->state == Actor::State::kExpected) welcome(*actor);
    const std::uint64_t h = actor->block->host_ns.load(std::memory_order_acquire);
    if (h > kLatest) {
      fail_actor(*actor, "its published clock is out of range");
      continue;
    }
    actor->published = later(actor->published, h);
    sum += h;
  }
  if (sum != clock_sum_) {
    clock_sum_ = sum;
    quiet_since_ = real_now_ns();
    idle_looks_ = 0;
  }
}

void Engine::welcome(Actor& actor) {
  const auto state = static_cast<wire::ActorState>(actor.block->state.load(std::memory_order_acquire));
  const std::uint32_t pid = actor.block->pid.load(std::memory_order_acquire);
  if (state < wire::ActorState::kLive || pid == 0) return;
  actor.state = Actor::State::kLive;
  actor.pid = pid;
  server_.watch(actor.index, pid);
  if (actor.child == 0) {
    std::uint32_t live = 0;
    for (const Actor* other : active_)
      live += other->index < header_.world_size && other->state != Actor::State::kExpected ? 1 : 0;
    if (live == header_.world_size && !started_) {
      started_ = true;
      if (!ending_) shared_.run_state.store(1, std::memory_order_release);
      events_.write(EventStream::line("started", global_));
    }
  }
}

bool Engine::drain_all() {
  bool any = false;
  // Index, not iterator: an attach or exit may change the list.
  for (std::size_t index = 0; index < active_.size(); ++index) any = drain(*active_[index]) || any;
  return any;
}

bool Engine::drain(Actor& actor) {
  wire::Record record;
  std::uint64_t taken = 0;
  RingReader::Outcome outcome;
  // A batch, so that one fast rank cannot keep the core from the others.
  const std::uint64_t most = header_.ring_slots;
  while (taken < most && (outcome = actor.ring->next(record)) == RingReader::Outcome::kRecord) {
    ++taken;
    handle(actor, record);
  }
  if (taken > 0) {
    actor.ring->release();
    actor.block->parked.store(0, std::memory_order_relaxed);
    records_ += taken;
    if (actor.block->producer_waits.load(std::memory_order_seq_cst) != 0) {
      actor.block->space_futex.fetch_add(1, std::memory_order_seq_cst);
      futex_wake_all(actor.block->space_futex);
    }
  }
  if (taken < most && outcome == RingReader::Outcome::kMalformed) {
    fail_actor(actor, "malformed record in slot " + std::to_string(actor.ring->slot()) + ": " + actor.ring->error());
  }
  return taken > 0;
}

Instant Engine::issue_time(Actor& actor, const wire::Record& record) {
  // H never goes back. What a forced event freed goes on at that event's time at the earliest.
  Instant issue = record.issue_ns;
  if (issue < actor.floor) issue = actor.floor;
  if (issue < timeline_.now()) {
    ++late_ops_;
    issue = timeline_.now();
  }
  issue = later(issue, actor.last_issue);
  actor.last_issue = issue;
  ++actor.pushes;
  if (!actor.running) {
    // Another thread of an actor whose last driver waits: it drives now.
    actor.running = true;
    if (&actor == actors_[0].get()) breakdown_.end_host_wait(issue);
  }
  return issue;
}

void Engine::handle(Actor& actor, const wire::Record& record) {
  if (actor.state == Actor::State::kExited) {
    // Destructors that run after the rank said that it ends: nothing counts, nobody may block.
    const bool waits = record.type >= RecordType::kWait && record.type <= RecordType::kSleep;
    const std::uint32_t slot = record.type == RecordType::kSleep ? record.sleep.slot : record.wait.slot;
    if (waits && claim_slot(actor, slot, record)) answer(actor, slot, wire::Status::kEnding, record.issue_ns, 0);
    return;
  }
  switch (record.type) {
    case RecordType::kKernel:
    case RecordType::kGemm:
    case RecordType::kMemcpy:
    case RecordType::kMemset:
    case RecordType::kEventRecord:
    case RecordType::kStreamWait:
    case RecordType::kCollective:
      return on_stream_op(actor, record);
    case RecordType::kWait:
      return on_wait(actor, record);
    case RecordType::kQuery:
      return on_query(actor, record);
    case RecordType::kElapsed:
      return on_elapsed(actor, record);
    case RecordType::kSleep:
      return on_sleep(actor, record);
    case RecordType::kMark:
      return on_mark(actor, record);
    case RecordType::kMemory:
      return on_memory(actor, record);
    case RecordType::kHostWork: {
      const Instant issue = issue_time(actor, record);
      return log_host(actor, record, issue, issue + record.host_work.duration_ns);
    }
    case RecordType::kExit:
      return on_exit(actor, record);
    default:
      return;  // the ring reader lets nothing else through
  }
}

void Engine::log_host(Actor& actor, const wire::Record& record, Instant start, Instant end) {
  LogEntry entry;
  entry.start = start;
  entry.end = end;
  entry.issue = start;
  entry.source = actor.host_source;
  entry.order = log_.order_of(actor.host_source);
  entry.sequence = ++actor.host_sequence;
  entry.shape = shapes_.intern(record);
  log_.add(entry);
}

void Engine::block(Actor& actor, std::string doing) {
  // The thread that pushed last drives: when it waits, the actor waits.
  if (actor.running && &actor == actors_[0].get()) breakdown_.begin_host_wait(actor.last_issue);
  actor.running = false;
  actor.doing = std::move(doing);
}

void Engine::unblock(Actor& actor, Instant resume) {
  if (actor.state == Actor::State::kExited || actor.running) return;
  ++unblocks_;
  actor.floor = later(actor.floor, resume);
  if (resume > actor.last_issue) actor.waited_ns += resume - actor.last_issue;
  actor.running = true;
  actor.doing.clear();
  if (&actor == actors_[0].get()) breakdown_.end_host_wait(later(actor.last_issue, resume));
  least_ = earlier(least_, actor.bound());
}

void Engine::at(Instant time, EventKind kind, Actor& actor, std::function<void()> act) {
  timeline_.push({later(time, timeline_.now()), kind, order_of(actor), ++actor.event_count, std::move(act), nullptr});
}

Instant Engine::least_bound() const {
  Instant least = kNever;
  for (const Actor* actor : active_) least = earlier(least, actor->bound());
  return least;
}

bool Engine::process_events() {
  if (ending_) return false;
  bool any = false;
  least_ = least_bound();
  // Strictly below: at an equal time somebody may still issue an event that comes first in the total order.
  while (timeline_.next_time() < least_ && !ending_) {
    timeline_.pop().act();
    settle_all();
    any = true;
  }
  return any;
}

Instant Engine::frontier() {
  Instant f = earlier(least_bound(), timeline_.next_time());
  if (!moving_since_.empty()) f = earlier(f, *moving_since_.begin());
  return f;
}

void Engine::publish_time() {
  const Instant known = earlier(least_bound(), timeline_.next_time());
  if (known != kNever && known > global_) {
    global_ = known;
    shared_.global_ns.store(global_, std::memory_order_seq_cst);
    fire_timers(global_);
  }
}

void Engine::fire_timers(Instant at) {
  for (Actor* actor : active_) {
    const Instant next = earlier(actor->block->next_timer_ns.load(std::memory_order_seq_cst),
                                 actor->block->timed_wait_ns.load(std::memory_order_seq_cst));
    if (next <= at) {
      actor->block->timer_futex.fetch_add(1, std::memory_order_seq_cst);
      futex_wake_all(actor->block->timer_futex);
    }
  }
  for (std::size_t index = 0; index < helper_deadlines_.size();) {
    if (helper_deadlines_[index].first > at && !helper_deadlines_[index].second.first->answered) {
      ++index;
      continue;
    }
    auto due = std::move(helper_deadlines_[index].second);
    helper_deadlines_.erase(helper_deadlines_.begin() + static_cast<std::ptrdiff_t>(index));
    if (!due.first->answered) due.second();
  }
}

void Engine::advance_outputs(bool all) {
  // Each pass looks at all that is left over, so passes are made when that has doubled; steps are shown when they are
  // known.
  const bool sweep = all || breakdown_.pending() >= breakdown_flush_at_ || emitted_ != closed_.size();
  if (!sweep && !log_.due()) return;
  const Instant f = all ? kNever : frontier();
  log_.advance(f, all);
  if (!sweep) return;
  breakdown_.advance(f);
  breakdown_flush_at_ = std::max<std::size_t>(4096, breakdown_.pending() * 2);
  emit_steps();
}

void Engine::rest() {
  const bool anyone_waits =
      std::any_of(active_.begin(), active_.end(), [](const Actor* actor) { return !actor->running; });
  // Ranks ring the doorbell when they block or fill their ring, not when they merely publish a later H.
  // When only Python works for long, looking often would take its CPU.
  const bool calm = real_now_ns() - quiet_since_ > 20'000'000;
  const std::uint64_t longest = !anyone_waits ? 5'000'000 : calm ? 2'000'000 : 500'000;
  doorbell_sleep_ns_ = std::clamp<std::uint64_t>(doorbell_sleep_ns_ * 2, 30'000, longest);
  const std::uint32_t seen = shared_.doorbell.load(std::memory_order_seq_cst);
  shared_.core_asleep.store(1, std::memory_order_seq_cst);
  const bool news = server_.has_incoming() || std::any_of(active_.begin(), active_.end(),
                                                          [](const Actor* actor) { return actor->ring->has_more(); });
  if (!news) futex_wait(shared_.doorbell, seen, doorbell_sleep_ns_);
  shared_.core_asleep.store(0, std::memory_order_seq_cst);
}

}  // namespace phantora::core
