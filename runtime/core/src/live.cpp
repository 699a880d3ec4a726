// What a live view is shown while the run goes on (docs/events.md): the state of all ranks, what moves slowly
// (kernels), and who waits for whom. Nothing here enters the op log or the report, and none of it is looked at more
// often than a person can see.
#include <algorithm>
#include <map>

#include "engine.hpp"

namespace phantora::core {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kOften = 100 * kMillisecond;
constexpr std::uint64_t kSeldom = 1'000 * kMillisecond;
constexpr std::uint64_t kRarely = 10'000 * kMillisecond;
constexpr std::uint64_t kOftenFor = 60'000 * kMillisecond;  // then the file would grow too fast
constexpr std::size_t kMaxListed = 16;

Json first_of(const std::vector<std::uint32_t>& ranks) {
  Json list = Json::array();
  for (std::size_t index = 0; index < ranks.size() && index < kMaxListed; ++index) list.push(ranks[index]);
  return list;
}

}  // namespace

void Engine::upkeep() {
  const std::uint64_t now = real_now_ns();
  if (started_at_ == 0) started_at_ = now;
  if (now - last_upkeep_ < kOften) return;
  last_upkeep_ = now;
  const bool moved = global_ >= next_rank_event_;
  if (moved && (now - started_at_ < kOftenFor || now - last_ranks_ >= kSeldom)) {
    last_ranks_ = now;
    next_rank_event_ = global_ + 1;
    show_ranks(now);
  }
  if (now - last_slow_ >= kSeldom) {
    last_slow_ = now;
    show_waiting();
    if (records_ != kernels_at_)
      events_.write(EventStream::line("kernels", global_).set("kernels", kernels_json(false, kMaxListed)));
    kernels_at_ = records_;
    if (details_moved_ && (now - started_at_ < kOftenFor || now - last_details_ >= kRarely)) {
      last_details_ = now;
      show_details();
    }
  }
  events_.flush();
}

// Columns instead of one object a rank: 256 ranks ten times a second are a few kilobytes each.
void Engine::show_ranks(std::uint64_t now) {
  Json h = Json::array(), state = Json::array(), steps = Json::array(), used = Json::array();
  Json compute = Json::array(), communication = Json::array(), waited = Json::array();
  std::map<std::string, std::size_t> numbers;
  Json states = Json::array();
  for (std::uint32_t rank = 0; rank < header_.world_size; ++rank) {
    const Actor& actor = *actors_[rank];
    std::string text = actor.running ? "runs" : actor.doing;
    if (actor.state == Actor::State::kExpected) text = "starts";
    if (actor.state == Actor::State::kExited) text = "ended";
    const auto [at, fresh] = numbers.try_emplace(text, numbers.size());
    if (fresh) states.push(text);
    state.push(at->second);
    h.push(actor.latest_clock());
    steps.push(actor.steps + (actor.stepped ? 1 : 0));
    used.push(device_bytes(segment_.device(rank).used_bytes));
    compute.push(actor.compute_ns);
    communication.push(actor.communication_ns);
    waited.push(actor.waited_ns);
  }
  Json line = EventStream::line("ranks", global_);
  line.set("real_ms", (now - started_at_) / kMillisecond).set("records", records_).set("states", std::move(states));
  line.set("state", std::move(state)).set("h_ns", std::move(h)).set("steps", std::move(steps));
  line.set("used_bytes", std::move(used)).set("compute_ns", std::move(compute));
  line.set("communication_ns", std::move(communication)).set("waited_ns", std::move(waited));
  events_.write(line);
}

// What one rank's page shows: its memory when it held most, by kind, and what each stream did in its last whole step.
void Engine::show_details() {
  details_moved_ = false;
  Json peak = Json::array(), context = Json::array(), communicators = Json::array(), libraries = Json::array();
  Json reserved = Json::array(), allocated = Json::array(), step = Json::array(), streams = Json::array();
  for (std::uint32_t rank = 0; rank < header_.world_size; ++rank) {
    Actor& actor = *actors_[rank];
    const std::uint64_t known = actor.memory_context + actor.memory_communicators;
    peak.push(actor.memory_peak);
    context.push(actor.memory_context);
    communicators.push(actor.memory_communicators);
    libraries.push(actor.memory_other - std::min(known, actor.memory_other));
    reserved.push(actor.block->torch_reserved_peak.load(std::memory_order_relaxed));
    allocated.push(actor.block->torch_allocated_peak.load(std::memory_order_relaxed));
    step.push(actor.step_ns);
    Json list = Json::array();
    std::size_t listed = 0;
    for (auto* each : {&actor.legacy, &actor.streams}) {
      for (auto& stream : *each) {
        if (stream == nullptr) continue;
        stream->close_steps(stream->resolved + 1);
        const StreamWork& work = stream->last_step;
        if (work.ops == 0 || ++listed > kMaxListed) continue;
        Json numbers = Json::array();
        for (std::uint64_t number : {std::uint64_t{stream->device}, std::uint64_t{stream->ordinal}, work.ops,
                                     work.compute_ns, work.communication_ns, work.late_ns})
          numbers.push(number);
        list.push(std::move(numbers));
      }
    }
    streams.push(std::move(list));
  }
  Json line = EventStream::line("details", global_);
  line.set("peak_bytes", std::move(peak)).set("context_bytes", std::move(context));
  line.set("communicator_bytes", std::move(communicators)).set("library_bytes", std::move(libraries));
  line.set("reserved_peak_bytes", std::move(reserved)).set("allocated_peak_bytes", std::move(allocated));
  line.set("step_ns", std::move(step)).set("streams", std::move(streams));
  events_.write(line);
}

// Of each communicator the first collective that has not begun: its members that are there wait for the others.
void Engine::show_waiting() {
  Json list = Json::array();
  std::size_t open = 0;
  for (const auto& comm : comms_) {
    if (comm == nullptr) continue;
    const auto collectives = comm->open_collectives();
    if (collectives.empty() || ++open > kMaxListed) continue;
    const Attendance there = comm->attendance(*collectives.front());
    list.push(std::move(Json::object()
                            .set("group", comm->label)
                            .set("communicator", comm->id)
                            .set("op", there.op)
                            .set("sequence", collectives.front()->sequence)
                            .set("size", comm->ranks.size())
                            .set("in", there.in.size())
                            .set("ranks_in", first_of(there.in))
                            .set("ranks_missing", first_of(there.missing))));
  }
  events_.write(EventStream::line("waiting", global_).set("open", open).set("communicators", std::move(list)));
}

}  // namespace phantora::core
