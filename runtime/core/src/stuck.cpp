// Nothing can be processed because somebody may still issue before the next event. Ranks that are blocked outside
// Phantora (a pipe, a child, a file) are found by looking at their processes; when everybody is blocked, the next event
// or deadline is forced; when there is none, the run hangs, and that is said at once.
#include <signal.h>

#include <algorithm>

#include "engine.hpp"

namespace phantora::core {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kLookPause = 2 * kMillisecond;

std::string list_ranks(const std::vector<std::uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t index = 0; index < ranks.size() && index < 8; ++index)
    text += (index == 0 ? "" : ", ") + std::to_string(ranks[index]);
  if (ranks.size() > 8) text += " and " + std::to_string(ranks.size() - 8) + " more";
  return text;
}

}  // namespace

void Engine::look_when_stuck() {
  if (ending_ || !started_) return;
  const std::uint64_t now = real_now_ns();
  const Instant next = timeline_.next_time();
  std::vector<Actor*> holders;
  bool hinted = true, anyone = false;
  for (Actor* actor : active_) {
    if (actor->state == Actor::State::kExited) continue;
    anyone = true;
    if (actor->bound() > next || !actor->running) continue;
    holders.push_back(actor);
    hinted = hinted && actor->block->outside.load(std::memory_order_relaxed) > 0;
  }
  if (!anyone) return;
  const std::uint64_t patience = hinted ? 2 * kMillisecond : 50 * kMillisecond;
  if (now - quiet_since_ < patience || now < next_look_) return;

  // When all wait in the core, their helper threads may still set what they wait for: look at everybody.
  std::vector<Actor*> watched = holders;
  if (holders.empty()) {
    std::copy_if(active_.begin(), active_.end(), std::back_inserter(watched),
                 [](const Actor* actor) { return actor->state != Actor::State::kExited; });
  }
  const auto not_idle = [&] {
    idle_looks_ = 0;
    outside_since_ = 0;
    look_pause_ns_ = std::clamp<std::uint64_t>(look_pause_ns_ * 3 / 2, kLookPause, 40 * kMillisecond);
    next_look_ = now + look_pause_ns_;
  };
  // Mostly it is one rank that works and works: it alone is looked at, not the whole process table.
  const bool watches_busy =
      std::any_of(watched.begin(), watched.end(), [this](const Actor* actor) { return actor->pid == busy_pid_; });
  if (watches_busy && ProcessWatch::runs_now(busy_pid_)) return not_idle();
  processes_.look();
  if (!holders_idle(watched)) return not_idle();
  look_pause_ns_ = 0;
  next_look_ = now + kLookPause;
  const std::uint64_t looks = config_.get_u64("core.park_looks", 3);
  if (++idle_looks_ < (hinted ? looks : 2 * looks)) return;
  force(holders);
}

bool Engine::holders_idle(const std::vector<Actor*>& holders) {
  bool idle = true;
  busy_pid_ = 0;
  for (const Actor* actor : holders) {
    if (processes_.idle(actor->pid)) continue;
    idle = false;
    if (busy_pid_ == 0) busy_pid_ = actor->pid;
  }
  return idle;
}

void Engine::release_holders(const std::vector<Actor*>& holders, Instant at) {
  for (Actor* actor : holders) {
    actor->floor = later(actor->floor, at);
    actor->block->floor_ns.store(actor->floor, std::memory_order_seq_cst);
    actor->block->parked.store(1, std::memory_order_relaxed);
  }
}

void Engine::force(const std::vector<Actor*>& holders) {
  const Instant next = timeline_.next_time();
  Instant deadline = kNever, timer = kNever;
  for (const Actor* actor : holders) {
    const Instant timed = actor->block->timed_wait_ns.load(std::memory_order_seq_cst);
    if (timed != actor->fired_deadline) deadline = earlier(deadline, timed);
    const Instant helper = actor->block->next_timer_ns.load(std::memory_order_seq_cst);
    if (helper > global_) timer = earlier(timer, helper);
  }
  // A helper thread may be what a blocked driving thread waits for. A worker process may be it as well, and one that is
  // short of CPU or still starting looks idle for a moment: where there is one, a helper's timer has to wait longer.
  if (next != kNever && timer < deadline) {
    deadline = timer;
    const bool workers = std::any_of(holders.begin(), holders.end(),
                                     [this](const Actor* actor) { return processes_.has_children(actor->pid); });
    const std::uint64_t patience_ms = config_.get_u64("core.helper_patience_ms", 250);
    if (workers && timer <= next && real_now_ns() - quiet_since_ < patience_ms * kMillisecond) return;
  }
  if (next == kNever && deadline == kNever) {
    if (holders.empty()) return hang();
    // Only ranks blocked outside. A helper thread's timer may free them; a child of theirs may sleep in real time.
    const std::uint64_t now = real_now_ns();
    if (outside_since_ == 0) outside_since_ = now;
    const bool family = std::any_of(holders.begin(), holders.end(),
                                    [this](const Actor* actor) { return processes_.has_children(actor->pid); });
    const std::uint64_t patience_ms = family || timer != kNever ? config_.get_u64("core.outside_patience_ms", 10000)
                                                                : config_.get_u64("core.blocked_patience_ms", 1000);
    if (now - outside_since_ > patience_ms * kMillisecond) return hang();
    deadline = timer;
    if (timer == kNever) return;
  }

  ++forced_;
  idle_looks_ = 0;
  if (deadline <= next) {
    deadline = later(deadline, timeline_.now());
    for (Actor* actor : holders) {
      const Instant timed = actor->block->timed_wait_ns.load(std::memory_order_seq_cst);
      if (timed <= deadline) actor->fired_deadline = timed;
    }
    timeline_.move_to(deadline);
    release_holders(holders, deadline);
    global_ = later(global_, deadline);
    shared_.global_ns.store(global_, std::memory_order_seq_cst);
    fire_timers(global_);
    return;
  }
  // One event, or several of ours up to the first that frees somebody: only that can change what the blocked ones see.
  const std::uint64_t unblocks = unblocks_;
  Instant others = kNever;
  for (const Actor* actor : active_) {
    if (std::find(holders.begin(), holders.end(), actor) == holders.end()) others = earlier(others, actor->bound());
  }
  least_ = others;
  do {
    release_holders(holders, timeline_.next_time());
    timeline_.pop().act();
    settle_all();
  } while (unblocks_ == unblocks && !ending_ && timeline_.next_time() < others);
  quiet_since_ = real_now_ns();
}

Json Engine::describe_instance(const Communicator& comm, const Instance& instance) {
  Json json = Json::object();
  json.set("group", comm.label).set("communicator", comm.id).set("sequence", instance.sequence);
  const Attendance there = comm.attendance(instance);
  Json in = Json::array(), missing = Json::array(), ops = Json::array();
  for (std::uint32_t rank : there.missing) missing.push(rank);
  for (std::size_t member = 0, next = 0; member < instance.units.size(); ++member) {
    if (instance.units[member] == nullptr) continue;
    const auto& op = instance.op(member).op;
    const std::uint32_t rank = there.in[next++];
    in.push(rank);
    ops.push(std::move(Json::object()
                           .set("rank", rank)
                           .set("op", collective_name(op.kind))
                           .set("count", op.count)
                           .set("bytes", op.bytes)
                           .set("type", static_cast<int>(op.type))
                           .set("root", op.peer)));
  }
  json.set("op", there.op)
      .set("ranks_in", std::move(in))
      .set("ranks_missing", std::move(missing))
      .set("ops", std::move(ops));
  return json;
}

Json Engine::describe_ranks() {
  Json ranks = Json::array();
  for (const auto& actor : actors_) {
    if (actor->state == Actor::State::kAbsent) continue;
    std::string state = "runs, or is blocked outside Phantora";
    if (actor->state == Actor::State::kExited) state = "ended with status " + std::to_string(actor->exit_status);
    if (actor->state == Actor::State::kExpected) state = "has not started";
    if (actor->state == Actor::State::kLive && !actor->running) state = actor->doing;
    Json one = Json::object();
    one.set("rank", actor->rank).set("child", actor->child).set("state", state);
    one.set("h_ns", actor->latest_clock());
    const auto stack = stacks_.find(actor->index);
    one.set("python_stack", stack == stacks_.end() ? Json() : Json(stack->second));
    ranks.push(std::move(one));
  }
  return ranks;
}

Json Engine::describe_hang() {
  Json communicators = Json::array();
  for (const auto& comm : comms_) {
    if (comm == nullptr) continue;
    const auto open = comm->open_collectives();
    if (!open.empty()) communicators.push(describe_instance(*comm, *open.front()));
    for (const auto& [key, instance] : comm->pairs) {
      if (instance->start == kNever) communicators.push(describe_instance(*comm, *instance));
    }
  }
  for (const auto& open : host_messages_.open()) {
    Json in = Json::array(), missing = Json::array();
    for (std::uint32_t member = 0; member < open.size; ++member) {
      const auto at = open.in.find(member);
      if (at == open.in.end()) {
        missing.push(member);
      } else {
        in.push(at->second);
      }
    }
    Json json = Json::object();
    json.set("group", open.group).set("sequence", open.sequence).set("op", "host collective");
    json.set("ranks_in", std::move(in)).set("members_missing", std::move(missing));
    communicators.push(std::move(json));
  }
  Json json = Json::object();
  json.set("at_ns", later(global_, timeline_.now())).set("communicators", std::move(communicators));
  json.set("ranks", describe_ranks());
  return json;
}

void Engine::hang() {
  ask_for_stacks();
  std::string message = "no rank can go on";
  for (const auto& comm : comms_) {
    if (comm == nullptr) continue;
    for (const Instance* instance : comm->open_collectives()) {
      const std::string number = std::to_string(instance->sequence);
      if (!agrees(*instance)) {
        mismatch_ = describe_instance(*comm, *instance);
        mismatch_.set("ranks", describe_ranks());
        return end_run("mismatch", "the ranks of group '" + comm->label + "' disagree on collective #" + number);
      }
      if (message != "no rank can go on") continue;
      const Attendance there = comm->attendance(*instance);
      if (there.missing.empty()) continue;
      message += ": " + list_ranks(there.in) + " in " + there.op + " #" + number + " of group '" + comm->label + "', " +
                 list_ranks(there.missing) + " missing";
    }
  }
  if (message == "no rank can go on") {
    for (const Actor* actor : active_) {
      if (actor->state == Actor::State::kExited) continue;
      message += ": rank " + std::to_string(actor->rank) + " " +
                 (actor->running ? "is blocked outside Phantora" : actor->doing);
      break;
    }
  }
  hang_ = describe_hang();
  end_run("hang", message);
}

void Engine::ask_for_stacks() {
  const auto signal_number = static_cast<int>(config_.get_u64("core.stack_signal", 0));
  if (signal_number == 0) return;
  std::size_t asked = 0;
  for (const Actor* actor : active_) {
    if (actor->state == Actor::State::kLive && kill(static_cast<pid_t>(actor->pid), signal_number) == 0) ++asked;
  }
  const std::uint64_t until = real_now_ns() + config_.get_u64("core.stack_wait_ms", 500) * kMillisecond;
  while (stacks_.size() < asked && real_now_ns() < until) {
    for (Incoming& one : server_.take()) {
      const bool stack =
          one.what == Incoming::What::kFrame && (one.frame.header.type == wire::MessageType::kStackReply ||
                                                 one.frame.header.type == wire::MessageType::kHello);
      if (stack) receive(one);
    }
    futex_wait(shared_.doorbell, shared_.doorbell.load(std::memory_order_seq_cst), kMillisecond);
  }
}

}  // namespace phantora::core
