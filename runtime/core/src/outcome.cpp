// How a run goes and ends: marks and steps, exits, verdicts.
#include <algorithm>

#include "engine.hpp"

namespace phantora::core {

using wire::MarkKind;
using wire::Status;

void Engine::on_mark(Actor& actor, const wire::Record& record) {
  const Instant issue = issue_time(actor, record);
  log_host(actor, record, issue, issue);
  const bool first_rank = &actor == actors_[0].get();
  const auto kind = record.mark.kind;
  if (kind == MarkKind::kOutOfMemory) {
    const auto& device = segment_.device(actor.rank);
    Json mark = Json::object();
    mark.set("rank", actor.rank).set("at_ns", issue).set("step", actor.steps).set("requested_bytes", record.mark.value);
    mark.set("phase", names_.get(record.mark.text)).set("used_bytes", device_bytes(device.used_bytes));
    mark.set("other_bytes", device_bytes(device.other_bytes)).set("capacity_bytes", header_.gpu.total_bytes);
    events_.write(EventStream::line("oom", issue).set("oom", mark));
    oom_marks_.push(std::move(mark));
    ++oom_count_;
    return;
  }
  if (kind == MarkKind::kText || kind == MarkKind::kPhase) {
    if (first_rank)
      events_.write(EventStream::line("mark", issue).set("rank", actor.rank).set("text", names_.get(record.mark.text)));
    return;
  }
  if (actor.child != 0) return;
  if (actor.step_begun == kNever || (kind == MarkKind::kOptimizerStep && !actor.stepped)) begin_step(actor, issue);
  // Step 0 starts with the first forward; without such a mark, with the first of any kind.
  if (first_rank && step_zero_ == 0) {
    step_zero_ = ++boundary_;
    ends_[step_zero_] = issue;
    breakdown_.add_boundary(issue, step_zero_);
  }
  if (kind == MarkKind::kOptimizerStep) {
    actor.stepped = true;
    if (first_rank) mark_step_end(actor, issue);
  } else if (kind == MarkKind::kBackward && actor.stepped) {
    // The optimizer steps before this backward belonged to one step; the last of them ended it.
    actor.stepped = false;
    ++actor.steps;
    if (first_rank && candidate_ != 0) closed_.push_back(std::exchange(candidate_, 0));
  }
}

// A rank's own steps, for the live view: from a first optimizer step after a backward to the next.
void Engine::begin_step(Actor& actor, Instant h) {
  if (actor.step_begun != kNever) actor.step_ns = h - actor.step_begun;
  actor.step_begun = h;
  details_moved_ = true;
  for (auto* list : {&actor.legacy, &actor.streams}) {
    for (auto& stream : *list) {
      if (stream != nullptr) stream->step_ends.push_back(stream->issued);
    }
  }
}

void Engine::mark_step_end(Actor& actor, Instant h) {
  Wait* wait = new_wait();
  wait->actor = &actor;
  wait->purpose = Wait::Purpose::kStepEnd;
  wait->issue = h;
  wait->remaining = 1;
  wait->id = candidate_ = ++boundary_;
  for (auto* list : {&actor.legacy, &actor.streams}) {
    for (auto& stream : *list) {
      if (stream != nullptr) wait_for_stream(wait, *stream);
    }
  }
  part_done(wait, 0);
}

void Engine::emit_steps() {
  for (; emitted_ < closed_.size(); ++emitted_) {
    const std::uint64_t id = closed_[emitted_];
    const std::uint64_t from = emitted_ == 0 ? step_zero_ : closed_[emitted_ - 1];
    const Shares* end = breakdown_.at_boundary(id);
    const Shares* begin = breakdown_.at_boundary(from);
    if (end == nullptr || begin == nullptr) return;
    Step step{ends_[from], ends_[id], *end - *begin};
    Json line = EventStream::line("step", step.end);
    line.set("index", emitted_).set("duration_ns", step.end - step.begin).set("compute_ns", step.shares.compute);
    line.set("communication_exposed_ns", step.shares.communication).set("host_exposed_ns", step.shares.host);
    line.set("idle_ns", step.shares.idle);
    events_.write(line);
    events_.flush();
    steps_.push_back(step);
    breakdown_.forget_boundaries_before(id);
    ends_.erase(ends_.begin(), ends_.find(id));
  }
}

void Engine::on_memory(Actor& actor, const wire::Record& record) {
  issue_time(actor, record);
  const std::uint32_t device = actor.rank / header_.gpus_per_node * header_.gpus_per_node + record.device;
  if (device >= header_.world_size) return;
  Actor& owner = *actors_[device];
  if (record.memory.used_bytes <= owner.memory_peak) return;
  owner.memory_peak = record.memory.used_bytes;
  // Ranks give it back when they end: too late for the report to ask.
  owner.memory_other = record.memory.other_bytes;
  owner.memory_context = record.memory.context_bytes;
  owner.memory_communicators = record.memory.communicator_bytes;
  details_moved_ = true;
}

void Engine::on_exit(Actor& actor, const wire::Record& record) {
  const Instant issue = issue_time(actor, record);
  log_host(actor, record, issue, issue);
  actor.exit_seen = true;
  actor.exit_status = record.exit.status;
  leave(actor);
  if (actor.child == 0 && actor.exit_status != 0) {
    end_run("failed", "rank " + std::to_string(actor.rank) + " ended with status " + std::to_string(actor.exit_status));
  }
}

void Engine::leave(Actor& actor) {
  if (actor.state == Actor::State::kExited) return;
  actor.state = Actor::State::kExited;
  actor.running = false;
  actor.doing = "ended";
  if (&actor == actors_[0].get() && candidate_ != 0) closed_.push_back(std::exchange(candidate_, 0));
  actor.block->state.store(static_cast<std::uint32_t>(wire::ActorState::kExited), std::memory_order_release);
  // What it held is free from then on.
  at(later(actor.last_issue, timeline_.now()), EventKind::kExit, actor,
     [this, index = actor.index] { locks_.release_all(Locks::holder_of_actor(index), timeline_.now()); });
}

void Engine::process_ended(std::uint32_t index, std::uint32_t pid) {
  Actor& actor = *actors_[index];
  if (actor.pid != pid || actor.state == Actor::State::kExited) return;
  drain(actor);  // its last words
  if (actor.state == Actor::State::kExited) return;
  leave(actor);
  if (actor.child == 0) {
    actor.exit_status = -1;
    end_run("failed",
            "the process of rank " + std::to_string(actor.rank) + " ended without a word (killed, or crashed)");
  }
}

void Engine::fail_actor(Actor& actor, const std::string& why) {
  const std::string who = actor.child == 0
                              ? "rank " + std::to_string(actor.rank)
                              : "process " + std::to_string(actor.child) + " of rank " + std::to_string(actor.rank);
  actor.exit_status = -1;
  leave(actor);
  end_run("failed", who + ": " + why);
}

void Engine::end_run(const std::string& verdict, const std::string& message) {
  if (ending_) return;
  ending_ = true;
  ending_since_ = real_now_ns();
  verdict_ = verdict;
  message_ = message;
  shared_.run_state.store(2, std::memory_order_release);
  events_.write(
      EventStream::line("verdict", later(global_, timeline_.now())).set("verdict", verdict).set("message", message));
  events_.flush();
  answer_everyone();
  write_report();
}

void Engine::answer_everyone() {
  const auto slots = std::exchange(open_slots_, {});
  for (const auto& [index, slot] : slots) {
    Actor& actor = *actors_[index];
    unblock(actor, actor.last_issue);
    answer(actor, slot, Status::kEnding, actor.last_issue, 0);
  }
  const auto requests = open_requests_;
  for (const RequestPtr& request : requests) refuse(request, Status::kEnding);
  for (const auto& actor : actors_) {
    if (actor->state == Actor::State::kAbsent) continue;
    actor->block->timer_futex.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(actor->block->timer_futex);
    actor->block->space_futex.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(actor->block->space_futex);
  }
}

bool Engine::everyone_gone() {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::uint64_t now = real_now_ns();
  if (ending_ && now - ending_since_ > config_.get_u64("core.ending_grace_ms", 15000) * (kSecond / 1000)) return true;
  bool children = false;
  for (const Actor* actor : active_) {
    if (actor->state == Actor::State::kExited) continue;
    if (actor->child == 0) return false;
    children = true;
  }
  // Processes that outlive their rank do not count for long.
  if (gone_since_ == 0) gone_since_ = now;
  return !children || now - gone_since_ > 2 * kSecond;
}

void Engine::add_note(const std::string& text) {
  if (noted_.size() < 1000 && noted_.insert(text).second) {
    notes_.push_back(text);
    events_.write(EventStream::line("note", global_).set("text", text));
  }
}

}  // namespace phantora::core
