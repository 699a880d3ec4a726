// Messages on the socket. Those that order or wait are events of the timeline when a driving thread sends them; those
// that only move data, and all of helper threads and detached processes, are answered at once.
#include <algorithm>

#include "engine.hpp"

namespace phantora::core {

using wire::MessageType;
using wire::Status;

namespace {

constexpr std::uint32_t kNoActor = ~0U;

bool ordered(MessageType type) {
  switch (type) {
    case MessageType::kStoreSet:
    case MessageType::kStoreGet:
    case MessageType::kStoreAdd:
    case MessageType::kStoreWait:
    case MessageType::kStoreCheck:
    case MessageType::kStoreDelete:
    case MessageType::kStoreCompareSet:
    case MessageType::kStoreCount:
    case MessageType::kStoreAppend:
    case MessageType::kStoreList:
    case MessageType::kOrder:
    case MessageType::kLock:
    case MessageType::kUnlock:
    case MessageType::kCommInit:
    case MessageType::kCommSplit:
    case MessageType::kHostCollective:
    case MessageType::kHostRecv:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Engine::take_requests() {
  auto incoming = server_.take();
  for (Incoming& one : incoming) receive(one);
  return !incoming.empty();
}

void Engine::receive(Incoming& incoming) {
  switch (incoming.what) {
    case Incoming::What::kClosed:
      std::erase_if(open_requests_, [&](const RequestPtr& request) {
        if (request->connection != incoming.connection) return false;
        request->answered = *request->finished = true;
        return true;
      });
      locks_.release_all(Locks::holder_of_connection(incoming.connection), timeline_.now());
      return;
    case Incoming::What::kProcessEnded:
      return process_ended(incoming.actor, incoming.pid);
    case Incoming::What::kMalformed: {
      for (const auto& actor : actors_) {
        const bool named = incoming.actor == actor->index && incoming.pid == actor->pid;
        if (actor->pid != 0 && incoming.pid != 0 && (named || incoming.pid == actor->pid) &&
            actor->state == Actor::State::kLive) {
          if (incoming.actor != kNoActor && incoming.actor < actors_.size() && !named) continue;
          return fail_actor(*actor, "malformed message on the core's socket: " + incoming.error);
        }
      }
      return add_note("a connection was dropped: " + incoming.error);
    }
    case Incoming::What::kFrame:
      break;
  }
  const auto& header = incoming.frame.header;
  auto request = std::make_shared<Request>();
  request->connection = incoming.connection;
  request->sequence = header.sequence;
  request->pid = incoming.pid;
  request->h = header.h_ns;
  request->type = header.type;
  request->body = std::move(incoming.frame.body);
  if (header.actor != kNoActor) {
    if (header.actor >= actors_.size() || actors_[header.actor]->state == Actor::State::kAbsent) {
      return malformed_request(request, "actor " + std::to_string(header.actor) + " does not exist");
    }
    request->actor = actors_[header.actor].get();
    request->order = order_of(*request->actor);
  }
  request->driving = header.driving != 0 && request->actor != nullptr && request->actor->state != Actor::State::kExited;
  open_requests_.insert(request);
  if (ending_ && request->type != MessageType::kStackReply && request->type != MessageType::kHello &&
      request->type != MessageType::kName && request->type != MessageType::kNote) {
    return refuse(request, Status::kEnding);
  }
  if (!ordered(request->type)) {
    if (request->driving) drain(*request->actor);
    if (!execute_at_once(request)) malformed_request(request, "its body does not fit its type");
    return;
  }
  if (!request->driving) {
    // A helper's or a detached process's: at once, in real time.
    execute(request);
    return;
  }
  // What the thread did before it asked comes first.
  Actor& actor = *request->actor;
  drain(actor);
  request->h = later(request->h, actor.floor);
  if (request->h < timeline_.now()) {
    ++late_ops_;
    request->h = timeline_.now();
  }
  request->h = later(request->h, actor.last_issue);
  actor.last_issue = request->h;
  if (!actor.running) {
    actor.running = true;
    if (&actor == actors_[0].get()) breakdown_.end_host_wait(request->h);
  }
  block(actor, "waits for the core");
  at(request->h, EventKind::kRequest, actor, [this, request] { execute(request); });
}

void Engine::execute(const RequestPtr& request) {
  if (request->answered) return;
  const Instant now = request->driving ? timeline_.now() : later(global_, request->actor == nullptr ? request->h : 0);
  bool fits = true;
  switch (request->type) {
    case MessageType::kOrder: {
      BodyReader body(request->body);
      body.text();
      if ((fits = body.complete())) reply(request, Status::kOk, request->h, {});
      break;
    }
    case MessageType::kLock:
    case MessageType::kUnlock:
      fits = locks_.execute(request, now);
      break;
    case MessageType::kCommInit:
      comm_init(request);
      break;
    case MessageType::kCommSplit:
      comm_split(request);
      break;
    case MessageType::kHostCollective:
      fits = host_messages_.collective(request);
      break;
    case MessageType::kHostRecv:
      fits = host_messages_.receive(request);
      break;
    default:
      fits = stores_.execute(request, now);
  }
  if (!fits) return malformed_request(request, "its body does not fit its type");
  if (!request->answered && request->driving && !request->actor->running) request->actor->doing = request->doing;
}

bool Engine::execute_at_once(const RequestPtr& request) {
  BodyReader body(request->body);
  switch (request->type) {
    case MessageType::kHello:
      break;
    case MessageType::kName: {
      const std::uint64_t hash = body.u64();
      const std::string name = body.text();
      if (!body.complete() || !names_.add(hash, name)) return false;
      segment_.add_name(hash);
      break;
    }
    case MessageType::kNote: {
      const std::string kind = body.text();
      const std::string text = body.text();
      if (!body.complete()) return false;
      add_note(kind == "note" ? text : kind + ": " + text);
      break;
    }
    case MessageType::kAttachChild:
      attach_child(request);
      return true;
    case MessageType::kCommInfo: {
      const Communicator* comm = comm_of(body.u32());
      if (!body.complete()) return false;
      if (comm == nullptr) {
        refuse(request, Status::kRefused);
        return true;
      }
      BodyWriter answer;
      answer.u32(static_cast<std::uint32_t>(comm->ranks.size()));
      for (std::uint32_t rank : comm->ranks) answer.u32(rank);
      reply(request, Status::kOk, request->h, answer.take());
      return true;
    }
    case MessageType::kCommDestroy: {
      Communicator* comm = comm_of(body.u32());
      body.u8();
      if (!body.complete()) return false;
      if (comm != nullptr && ++comm->destroyed >= comm->members.size()) broker_.forget(comm->id);
      break;
    }
    case MessageType::kPost:
    case MessageType::kFetch: {
      Communicator* comm = comm_of(body.u32());
      if (!body.ok()) return false;
      if (comm == nullptr) {
        refuse(request, Status::kRefused);
        return true;
      }
      return request->type == MessageType::kPost ? broker_.post(request, *comm) : broker_.fetch(request, *comm);
    }
    case MessageType::kHostSend:
      return host_messages_.send(request);
    case MessageType::kStackReply: {
      const std::string text = body.text();
      if (!body.complete()) return false;
      if (request->actor != nullptr) stacks_[request->actor->index] = text;
      break;
    }
    default:
      return false;
  }
  reply(request, Status::kOk, request->h, {});
  return true;
}

void Engine::attach_child(const RequestPtr& request) {
  BodyReader body(request->body);
  const std::uint32_t rank = body.u32();
  const std::uint32_t pid = body.u32();
  if (!body.complete() || rank >= header_.world_size)
    return malformed_request(request, "its body does not fit its type");
  for (std::uint32_t index = header_.world_size; index < actors_.size(); ++index) {
    Actor& actor = *actors_[index];
    // A used block is not used again: its ring holds what the core knows of its streams and events.
    if (actor.state != Actor::State::kAbsent) continue;
    actor.state = Actor::State::kExpected;
    actor.rank = rank;
    actor.child = ++children_of_rank_[rank];
    actor.running = true;
    // It had a clock of its own, which nobody waited for: it cannot issue in the past.
    actor.floor = actor.published = later(later(request->h, global_), timeline_.now());
    actor.pid = pid;
    actor.host_source = log_.add_source({rank, actor.child, 0, 0, 0, 0});
    actor.block->rank = rank;
    actor.block->device = rank % header_.gpus_per_node;
    actor.block->timed_wait_ns.store(wire::kUnresolved, std::memory_order_relaxed);
    actor.block->next_timer_ns.store(wire::kUnresolved, std::memory_order_relaxed);
    actor.block->host_ns.store(actor.floor, std::memory_order_relaxed);
    actor.block->pid.store(pid, std::memory_order_relaxed);
    actor.block->state.store(static_cast<std::uint32_t>(wire::ActorState::kClaimed), std::memory_order_release);
    active_.push_back(&actor);
    std::sort(active_.begin(), active_.end(), [](const Actor* a, const Actor* b) { return a->index < b->index; });
    server_.watch(index, pid);
    return reply(request, Status::kOk, actor.floor, BodyWriter().u32(index).take());
  }
  add_note("rank " + std::to_string(rank) + " wanted a further process with GPU work, but all " +
           std::to_string(actors_.size() - header_.world_size) + " places are taken (extra_actors)");
  refuse(request, Status::kRefused);
}

Communicator* Engine::comm_of(std::uint32_t id) { return id < comms_.size() ? comms_[id].get() : nullptr; }

std::uint32_t Engine::add_comm(std::string label, std::vector<Actor*> members) {
  auto comm = std::make_unique<Communicator>();
  comm->id = static_cast<std::uint32_t>(comms_.size());
  comm->label = std::move(label);
  comm->members = std::move(members);
  for (const Actor* member : comm->members) comm->ranks.push_back(member->rank);
  log_.add_comm(comm->id, {comm->label, comm->ranks, false});
  comms_.push_back(std::move(comm));
  return static_cast<std::uint32_t>(comms_.size() - 1);
}

void Engine::comm_init(const RequestPtr& request) {
  BodyReader body(request->body);
  const std::string id = body.text();
  const std::uint32_t size = body.u32();
  const std::uint32_t rank = body.u32();
  const std::string label = body.text();
  if (!body.complete() || request->actor == nullptr || size == 0 || rank >= size || size > actors_.size()) {
    return malformed_request(request, "its body does not fit its type");
  }
  Gathering& gathering = inits_[id];
  if ((gathering.expected != 0 && gathering.expected != size) || gathering.requests.count(rank) != 0) {
    return malformed_request(request, "the members of a new communicator disagree on its size, or two have one rank");
  }
  gathering.expected = size;
  gathering.latest = later(gathering.latest, request->h);
  gathering.label = label;
  gathering.requests[rank] = request;
  request->doing = "waits in the set-up of communicator '" + label + "' (" + std::to_string(gathering.requests.size()) +
                   " of " + std::to_string(size) + " ranks were there)";
  if (gathering.requests.size() < size) return;
  std::vector<Actor*> members;
  for (const auto& [member, each] : gathering.requests) members.push_back(each->actor);
  const std::uint32_t comm = add_comm(label, members);
  const Instant done = gathering.latest + header_.host_cost_ns[static_cast<int>(wire::CallKind::kCommInit)];
  const auto requests = std::move(gathering.requests);
  inits_.erase(id);
  for (const auto& [member, each] : requests) reply(each, Status::kOk, done, BodyWriter().u32(comm).take());
}

void Engine::comm_split(const RequestPtr& request) {
  BodyReader body(request->body);
  const std::uint32_t parent_id = body.u32();
  const std::int32_t color = body.i32();
  const std::int32_t key = body.i32();
  const std::string label = body.text();
  Communicator* parent = comm_of(parent_id);
  if (!body.complete() || parent == nullptr) return malformed_request(request, "its body does not fit its type");
  const auto at = std::find(parent->members.begin(), parent->members.end(), request->actor);
  if (at == parent->members.end())
    return malformed_request(request, "the rank is no member of the communicator it splits");
  const auto member = static_cast<std::uint32_t>(at - parent->members.begin());

  // The n-th split of one member meets the n-th of the others.
  const std::pair split_key(parent_id, ++split_counts_[{parent_id, request->actor}]);
  Gathering& gathering = splits_[split_key];
  gathering.latest = later(gathering.latest, request->h);
  gathering.requests[member] = request;
  gathering.colors[member] = {color, key};
  if (color >= 0) gathering.label = label;
  request->doing = "waits in a split of communicator '" + parent->label + "' (" +
                   std::to_string(gathering.requests.size()) + " of " + std::to_string(parent->members.size()) +
                   " ranks were there)";
  if (gathering.requests.size() < parent->members.size()) return;

  std::map<std::int32_t, std::vector<std::pair<std::int32_t, std::uint32_t>>> groups;
  for (const auto& [each, choice] : gathering.colors) {
    if (choice.first >= 0) groups[choice.first].emplace_back(choice.second, each);
  }
  std::map<std::uint32_t, Bytes> answers;
  for (auto& [group_color, group] : groups) {
    std::sort(group.begin(), group.end());
    std::vector<Actor*> members;
    for (const auto& [order, each] : group) members.push_back(parent->members[each]);
    BodyReader first(gathering.requests[group[0].second]->body);
    first.u32();
    first.u32();
    first.u32();
    const std::uint32_t comm = add_comm(first.text(), members);
    parent = comm_of(parent_id);
    for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
      answers[group[rank].second] =
          BodyWriter().u32(comm).u32(static_cast<std::uint32_t>(group.size())).u32(rank).take();
    }
  }
  const Instant done = gathering.latest + header_.host_cost_ns[static_cast<int>(wire::CallKind::kCommInit)];
  const auto requests = std::move(gathering.requests);
  splits_.erase(split_key);
  for (const auto& [each, waiting] : requests) {
    const auto answer = answers.find(each);
    reply(waiting, Status::kOk, done,
          answer != answers.end() ? answer->second : BodyWriter().u32(0).u32(0).u32(0).take());
  }
}

void Engine::reply(const RequestPtr& request, Status status, Instant resume, Bytes body) {
  if (request->answered) return;
  request->answered = *request->finished = true;
  open_requests_.erase(request);
  if (request->driving && ordered(request->type)) {
    // While it waited, others may have gone past what freed it (a helper thread's message): nobody goes on in the past.
    if (!request->actor->running) resume = later(resume, timeline_.now());
    unblock(*request->actor, resume);
  }
  wire::ReplyHeader header{};
  if (body.size() > wire::kMaxMessageBytes) {
    status = Status::kRefused;
    body.clear();
  }
  header.bytes = static_cast<std::uint32_t>(body.size());
  header.status = status;
  header.sequence = request->sequence;
  header.resume_ns = resume;
  server_.reply(request->connection, header, body);
}

void Engine::refuse(const RequestPtr& request, Status status) { reply(request, status, request->h, {}); }

void Engine::malformed_request(const RequestPtr& request, const std::string& why) {
  const std::string text = "malformed message of type " + std::to_string(static_cast<int>(request->type)) + ": " + why;
  refuse(request, Status::kMalformed);
  server_.drop(request->connection);
  if (request->actor != nullptr && request->actor->state != Actor::State::kAbsent) {
    fail_actor(*request->actor, text);
  } else {
    add_note("a connection was dropped: " + text);
  }
}

void Engine::on_timeout(const RequestPtr& request, std::uint64_t timeout_ns, std::function<void()> act) {
  if (timeout_ns >= kLatest || request->answered) return;
  if (!request->driving) {
    helper_deadlines_.push_back({later(global_, request->h) + timeout_ns, {request, std::move(act)}});
    return;
  }
  timeline_.push({later(request->h + timeout_ns, timeline_.now()), EventKind::kTimeout, request->order,
                  ++request->actor->event_count, std::move(act), request->finished});
}

}  // namespace phantora::core
