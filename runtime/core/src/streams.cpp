// Streams as max-plus: an op starts at the latest of its issue + launch latency, the end of the op before it on its
// stream, and the events its stream waits for. Whatever is known is resolved at once; the rest waits in its stream's
// queue.
#include <algorithm>

#include "engine.hpp"

namespace phantora::core {

using wire::RecordType;

Stream& Engine::stream_of(Actor& actor, std::uint32_t device, std::uint16_t ordinal) {
  // Ordinal 0 is the legacy default stream, one for each device.
  auto& list = ordinal == 0 ? actor.legacy : actor.streams;
  const std::size_t index = ordinal == 0 ? device : ordinal;
  if (list.size() <= index) list.resize(index + 1);
  if (list[index] == nullptr) {
    auto stream = std::make_unique<Stream>();
    stream->actor = &actor;
    stream->device = device;
    stream->ordinal = ordinal;
    stream->source = log_.add_source({actor.rank, actor.child, device, ordinal + 1U, 0, 0});
    list[index] = std::move(stream);
  }
  return *list[index];
}

void Engine::on_stream_op(Actor& actor, const wire::Record& record) {
  Stream& stream = stream_of(actor, record.device, record.stream);
  if (record.stream_sequence <= stream.issued) {
    return fail_actor(actor, "malformed record in slot " + std::to_string((record.index) % header_.ring_slots) +
                                 ": stream sequence " + std::to_string(record.stream_sequence) + " after " +
                                 std::to_string(stream.issued));
  }
  ++actor.ops;
  const Instant issue = issue_time(actor, record);
  stream.issued = record.stream_sequence;
  if (record.type == RecordType::kCollective) {
    on_collective(actor, record, stream, issue);
    return;
  }

  StreamOp op;
  op.type = record.type;
  op.issue = issue;
  op.earliest = issue + latency_;
  op.sequence = record.stream_sequence;
  op.shape = shapes_.intern(record);
  if (record.type == RecordType::kEventRecord) {
    auto recording = std::make_shared<Recording>();
    recording->event = record.event.event;
    recording->generation = record.event.generation;
    recording->source = stream.source;
    recording->sequence = record.stream_sequence;
    op.recording = recording;
    auto& recordings = actor.events[record.event.event].recordings;
    // Threads may still ask for the record before the last; nobody asks for older ones.
    while (recordings.size() >= 3 && recordings.front()->completion != kNever) recordings.erase(recordings.begin());
    recordings.push_back(std::move(recording));
  } else if (record.type == RecordType::kStreamWait) {
    op.recording = find_recording(actor, record.event.event, record.event.generation);
  }
  stream.pending.push_back(op);
  settle(stream);
  settle_all();
}

std::shared_ptr<Recording> Engine::find_recording(Actor& actor, std::uint32_t event, std::uint32_t generation,
                                                  bool* superseded) {
  const auto at = actor.events.find(event);
  if (at == actor.events.end()) return nullptr;
  const auto& recordings = at->second.recordings;
  for (auto recording = recordings.rbegin(); recording != recordings.rend(); ++recording) {
    if ((*recording)->generation == generation) return *recording;
  }
  if (superseded != nullptr) *superseded = !recordings.empty() && generation < recordings.front()->generation;
  return nullptr;
}

void Engine::settle(Stream& stream) {
  if (stream.queued) return;
  stream.queued = true;
  unsettled_.push_back(&stream);
}

void Engine::settle_all() {
  while (!unsettled_.empty()) {
    Stream* stream = unsettled_.back();
    unsettled_.pop_back();
    stream->queued = false;
    resolve_pending(*stream);
  }
}

void Engine::resolve_pending(Stream& stream) {
  while (!stream.pending.empty()) {
    StreamOp& op = stream.pending.front();
    Instant start = later(op.earliest, stream.tail);
    if (op.unit != nullptr) {
      // The unit takes itself off the stream when it ends.
      reach(*op.unit, stream, start);
      return;
    }
    Instant end = start;
    if (op.type == RecordType::kStreamWait && op.recording != nullptr) {
      if (op.recording->completion == kNever) {
        auto& streams = op.recording->streams;
        if (std::find(streams.begin(), streams.end(), &stream) == streams.end()) streams.push_back(&stream);
        // It has begun, whenever it ends: the log stays open from here.
        if (!op.holds_log) moving_since_.insert(start);
        op.holds_log = true;
        return;
      }
      if (op.holds_log) moving_since_.erase(moving_since_.find(start));
      end = later(start, op.recording->completion);
    } else {
      end = start + shapes_[op.shape].cost.duration_ns;
    }
    const StreamOp done = op;
    stream.pending.pop_front();
    finish_op(stream, done, start, end);
  }
}

void Engine::finish_op(Stream& stream, const StreamOp& op, Instant start, Instant end) {
  stream.tail = end;
  // Ops that joined an earlier unit have no entry of their own.
  stream.resolved = stream.pending.empty() ? stream.issued : op.sequence;
  if (!stream.dirty) {
    stream.dirty = true;
    dirty_.push_back(&stream);
  }
  LogEntry entry;
  entry.start = start;
  entry.end = end;
  entry.issue = op.issue;
  entry.source = stream.source;
  entry.order = log_.order_of(stream.source);
  entry.sequence = op.sequence;
  entry.shape = op.shape;
  if (op.type == RecordType::kStreamWait && op.recording != nullptr) {
    entry.extra[0] = op.recording->source + 1U;
    entry.extra[1] = op.recording->sequence;
  }
  log_.add(entry);
  OpShape& shape = shapes_[op.shape];
  stream.close_steps(op.sequence);
  if (op.type <= RecordType::kMemset) {
    ++stream.work.ops;
    stream.work.compute_ns += end - start;
    ++shape.launches;
    shape.busy_ns += end - start;
    stream.actor->compute_ns += end - start;
    busy_by_source_[static_cast<int>(shape.cost.source)] += end - start;
    if (stream.actor->rank == 0) breakdown_.add_compute(start, end);
  }
  if (op.type == RecordType::kEventRecord) {
    op.recording->completion = end;
    publish_event(*stream.actor, *op.recording);
    for (Stream* waiting : op.recording->streams) settle(*waiting);
    op.recording->streams.clear();
    auto waits = std::move(op.recording->waits);
    op.recording->waits.clear();
    for (const EventWaiter& waiter : waits) {
      if (waiter.completion != nullptr) *waiter.completion = end;
      part_done(waiter.wait, end);
    }
  }
  if (!stream.waiters.empty()) wake_stream_waiters(stream);
}

void Engine::wake_stream_waiters(Stream& stream) {
  auto waiting = std::move(stream.waiters);
  stream.waiters.clear();
  for (const StreamWaiter& waiter : waiting) {
    if (waiter.sequence <= stream.resolved) {
      part_done(waiter.wait, stream.tail);
    } else {
      stream.waiters.push_back(waiter);
    }
  }
}

void Engine::publish_event(Actor& actor, const Recording& recording) {
  auto& slot = actor.block->events[recording.event % wire::kEventSlots];
  slot.key.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  slot.completion_ns.store(recording.completion, std::memory_order_relaxed);
  slot.key.store(static_cast<std::uint64_t>(recording.event) << 32 | recording.generation, std::memory_order_release);
}

void Engine::publish_streams() {
  for (Stream* stream : dirty_) {
    stream->dirty = false;
    // Stream 0 has one slot for all devices: only the default device's is published there.
    if (stream->ordinal == 0 && stream->device != stream->actor->block->device) continue;
    auto& slot = stream->actor->block->streams[stream->ordinal % wire::kStreamSlots];
    slot.key.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    slot.completion_ns.store(stream->tail, std::memory_order_relaxed);
    slot.key.store(static_cast<std::uint64_t>(stream->ordinal) << 48 | (stream->resolved & 0xffffffffffffULL),
                   std::memory_order_release);
  }
  dirty_.clear();
}

}  // namespace phantora::core
