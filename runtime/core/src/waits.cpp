// Waits, queries, elapsed times and sleeps. A wait is answered as soon as its completion is known, which may be long
// before virtual time gets there: the waiter then runs on from that time, and holds others back from it.
#include "engine.hpp"

namespace phantora::core {

using wire::RecordType;
using wire::Status;
using wire::WaitKind;

namespace {

std::string stream_text(const wire::Record& record) {
  return "stream " + std::to_string(record.stream) + " of device " + std::to_string(record.device);
}

}  // namespace

bool Engine::claim_slot(Actor& actor, std::uint32_t slot, const wire::Record& record) {
  if (actor.block->wait[slot].state.load(std::memory_order_acquire) == 1) return true;
  fail_actor(actor, "malformed record in slot " + std::to_string(record.index % header_.ring_slots) + ": " +
                        record_type_name(record.type) + " names wait slot " + std::to_string(slot) +
                        ", where nobody waits");
  return false;
}

void Engine::answer(Actor& actor, std::uint32_t slot, Status status, Instant resume, std::uint64_t value) {
  publish_streams();  // whoever goes on finds in the tables what it waited for
  auto& wait = actor.block->wait[slot];
  open_slots_.erase({actor.index, slot});
  wait.status = static_cast<std::uint32_t>(status);
  wait.resume_ns = resume;
  wait.value = value;
  wait.state.store(2, std::memory_order_release);
  futex_wake_all(wait.state);
}

void Engine::answer_driving(Actor& actor, std::uint32_t slot, Instant resume, std::uint64_t value) {
  unblock(actor, resume);
  answer(actor, slot, Status::kOk, resume, value);
}

bool Engine::open_slot(Actor& actor, std::uint32_t slot, const wire::Record& record) {
  if (!claim_slot(actor, slot, record)) return false;
  open_slots_.insert({actor.index, slot});
  if (!ending_) return true;
  answer(actor, slot, Status::kEnding, actor.last_issue, 0);
  return false;
}

Wait* Engine::new_wait() {
  auto wait = std::make_unique<Wait>();
  Wait* made = wait.get();
  waits_.emplace(made, std::move(wait));
  return made;
}

void Engine::on_wait(Actor& actor, const wire::Record& record) {
  const auto& op = record.wait;
  const bool peek = op.peek != 0;
  const Instant issue = peek ? 0 : issue_time(actor, record);
  if (!open_slot(actor, op.slot, record)) return;
  if (op.kind == WaitKind::kResume && !peek) {
    // Goes on when everybody else has passed this time.
    block(actor, "waits for its turn");
    at(issue, EventKind::kQuery, actor,
       [this, &actor, slot = op.slot] { answer_driving(actor, slot, timeline_.now(), 0); });
    return;
  }

  Wait* wait = new_wait();
  wait->actor = &actor;
  wait->slot = op.slot;
  wait->peek = peek;
  wait->issue = issue;
  wait->remaining = 1;  // ours, until all parts are registered
  std::string doing;
  if (op.kind == WaitKind::kStream) {
    wait_for_stream(wait, stream_of(actor, record.device, record.stream));
    doing = "waits for " + stream_text(record);
  } else if (op.kind == WaitKind::kDevice) {
    for (auto* list : {&actor.legacy, &actor.streams}) {
      for (auto& stream : *list) {
        if (stream != nullptr && stream->device == record.device) wait_for_stream(wait, *stream);
      }
    }
    doing = "waits for device " + std::to_string(record.device);
  } else if (op.kind == WaitKind::kEvent) {
    // Never recorded, or replaced by later records since: complete.
    if (const auto recording = find_recording(actor, op.event, op.generation)) {
      if (recording->completion == kNever) {
        ++wait->remaining;
        recording->waits.push_back({wait, nullptr});
      } else {
        wait->completion = recording->completion;
      }
    }
    doing = "waits for an event";
  }
  if (!peek && wait->remaining > 1) block(actor, std::move(doing));
  part_done(wait, 0);
}

void Engine::wait_for_stream(Wait* wait, Stream& stream) {
  if (stream.pending.empty()) {
    wait->completion = later(wait->completion, stream.tail);
    return;
  }
  ++wait->remaining;
  stream.waiters.push_back({stream.pending.back().sequence, wait});
}

void Engine::part_done(Wait* wait, Instant completion) {
  wait->completion = later(wait->completion, completion);
  if (--wait->remaining == 0) finish_wait(wait);
}

void Engine::finish_wait(Wait* wait) {
  const auto owned = waits_.extract(wait);  // gone at the end of this function
  if (wait->purpose == Wait::Purpose::kStepEnd) {
    const Instant end = later(wait->issue, wait->completion);
    ends_[wait->id] = end;
    breakdown_.add_boundary(end, wait->id);
    return;
  }
  Actor& actor = *wait->actor;
  if (open_slots_.count({actor.index, wait->slot}) == 0) return;  // the run is ending: answered already
  const bool elapsed = wait->purpose == Wait::Purpose::kElapsed;
  const std::uint64_t value = elapsed ? wait->to - wait->from : wait->completion;
  if (wait->peek) {
    answer(actor, wait->slot, Status::kOk, wait->completion, value);
  } else {
    answer_driving(actor, wait->slot, later(wait->issue, wait->completion), value);
  }
}

bool Engine::known_completion(Actor& actor, const wire::Record& record, Instant* completion) {
  *completion = 0;
  const auto stream_known = [completion](const Stream& stream) {
    *completion = later(*completion, stream.tail);
    return stream.pending.empty();
  };
  switch (record.wait.kind) {
    case WaitKind::kStream:
      return stream_known(stream_of(actor, record.device, record.stream));
    case WaitKind::kDevice: {
      bool known = true;
      for (auto* list : {&actor.legacy, &actor.streams}) {
        for (auto& stream : *list) {
          if (stream != nullptr && stream->device == record.device) known = stream_known(*stream) && known;
        }
      }
      return known;
    }
    case WaitKind::kEvent: {
      const auto recording = find_recording(actor, record.wait.event, record.wait.generation);
      if (recording == nullptr) return true;
      *completion = recording->completion;
      return recording->completion != kNever;
    }
    default:
      return true;
  }
}

void Engine::on_query(Actor& actor, const wire::Record& record) {
  const auto& op = record.wait;
  const bool peek = op.peek != 0;
  const Instant issue = peek ? 0 : issue_time(actor, record);
  if (!open_slot(actor, op.slot, record)) return;
  Instant completion = 0;
  const bool known = known_completion(actor, record, &completion);
  if (peek) {
    answer(actor, op.slot, Status::kOk, global_, known && completion <= global_ ? 1 : 0);
    return;
  }
  if (known) {
    answer(actor, op.slot, Status::kOk, issue, completion <= issue ? 1 : 0);
    return;
  }
  // Not known yet: once everything before `issue` has happened, what is still not known is not done. What is asked for
  // is fixed now: later work on the stream by other threads does not count.
  std::shared_ptr<Recording> recording;
  std::vector<std::pair<const Stream*, std::uint64_t>> streams;
  if (op.kind == WaitKind::kEvent) {
    recording = find_recording(actor, op.event, op.generation);
  } else if (op.kind == WaitKind::kStream) {
    const Stream& stream = stream_of(actor, record.device, record.stream);
    streams.emplace_back(&stream, stream.pending.back().sequence);
  } else {
    for (auto* list : {&actor.legacy, &actor.streams}) {
      for (auto& stream : *list) {
        if (stream != nullptr && stream->device == record.device && !stream->pending.empty()) {
          streams.emplace_back(stream.get(), stream->pending.back().sequence);
        }
      }
    }
  }
  block(actor, "asks whether work is done");
  at(issue, EventKind::kQuery, actor, [this, &actor, slot = op.slot, issue, recording, streams = std::move(streams)] {
    bool done = recording == nullptr || recording->completion <= issue;
    for (const auto& [stream, sequence] : streams) done = done && stream->resolved >= sequence && stream->tail <= issue;
    answer_driving(actor, slot, issue, done ? 1 : 0);
  });
}

void Engine::on_elapsed(Actor& actor, const wire::Record& record) {
  const auto& op = record.wait;
  const bool peek = op.peek != 0;
  const Instant issue = peek ? 0 : issue_time(actor, record);
  if (!open_slot(actor, op.slot, record)) return;
  Wait* wait = new_wait();
  wait->purpose = Wait::Purpose::kElapsed;
  wait->actor = &actor;
  wait->slot = op.slot;
  wait->peek = peek;
  wait->issue = issue;
  wait->remaining = 1;
  const auto part = [&](std::uint32_t event, std::uint32_t generation, Instant* completion) {
    const auto recording = find_recording(actor, event, generation);
    if (recording == nullptr) return;
    *completion = recording->completion;
    if (recording->completion != kNever) return;  // reading a time that is known does not wait for it
    ++wait->remaining;
    recording->waits.push_back({wait, completion});
  };
  part(op.event, op.generation, &wait->from);
  part(op.event_end, op.generation_end, &wait->to);
  if (!peek && wait->remaining > 1) block(actor, "waits for the times of two events");
  part_done(wait, 0);
}

void Engine::on_sleep(Actor& actor, const wire::Record& record) {
  const Instant issue = issue_time(actor, record);
  if (!open_slot(actor, record.sleep.slot, record)) return;
  const Instant until = later(issue, record.sleep.until_ns);
  log_host(actor, record, issue, until);
  block(actor, "sleeps until " + std::to_string(until) + " ns");
  at(until, EventKind::kSleep, actor,
     [this, &actor, slot = record.sleep.slot, until] { answer_driving(actor, slot, until, 0); });
}

}  // namespace phantora::core
