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
    h.push(later(later(actor.published, actor.floor), actor.last_issue));
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

// Of each communicator the first collective that has not begun: its members that are there wait for the others.
void Engine::show_waiting() {
  Json list = Json::array();
  std::size_t open = 0;
  for (const auto& comm : comms_) {
    if (comm == nullptr) continue;
    const Instance* first = nullptr;
    for (const auto& [sequence, instance] : comm->collectives) {
      if (instance->start == kNever && (first == nullptr || sequence < first->sequence)) first = instance.get();
    }
    if (first == nullptr || ++open > kMaxListed) continue;
    std::vector<std::uint32_t> in, missing;
    const char* name = "collective";
    for (std::size_t member = 0; member < first->units.size(); ++member) {
      (first->units[member] != nullptr ? in : missing).push_back(comm->ranks[member]);
      if (first->units[member] != nullptr) name = collective_name(first->op(member).op.kind);
    }
    list.push(std::move(Json::object()
                            .set("group", comm->label)
                            .set("communicator", comm->id)
                            .set("op", name)
                            .set("sequence", first->sequence)
                            .set("size", comm->ranks.size())
                            .set("in", in.size())
                            .set("ranks_in", first_of(in))
                            .set("ranks_missing", first_of(missing))));
  }
  events_.write(EventStream::line("waiting", global_).set("open", open).set("communicators", std::move(list)));
}

}  // namespace phantora::core
