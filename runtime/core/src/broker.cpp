#include "broker.hpp"

#include <algorithm>

namespace phantora::core {
namespace {

bool is_pair(std::uint8_t kind) {
  return kind == static_cast<std::uint8_t>(wire::CollectiveKind::kSend) ||
         kind == static_cast<std::uint8_t>(wire::CollectiveKind::kRecv);
}

}  // namespace

bool Broker::member_of(const Communicator& comm, const Actor* actor, std::uint32_t* member) {
  const auto at = std::find(comm.members.begin(), comm.members.end(), actor);
  if (at == comm.members.end()) return false;
  *member = static_cast<std::uint32_t>(at - comm.members.begin());
  return true;
}

bool Broker::post(const RequestPtr& request, Communicator& comm) {
  BodyReader body(request->body);
  body.u32();  // the communicator, looked up by the caller
  const std::uint64_t sequence = body.u64();
  const std::int32_t peer = body.i32();
  const std::uint8_t kind = body.u8();
  Bytes payload = body.text();
  std::uint32_t member = 0;
  if (!body.complete() || !member_of(comm, request->actor, &member)) return false;
  // One key for a pair, whether seen from the sender or the receiver.
  const Key key = is_pair(kind) ? Key{comm.id, 0, sequence, static_cast<std::int32_t>(member), peer}
                                : Key{comm.id, kind, sequence, -1, -1};
  slots_[key].payloads[member] = std::move(payload);
  replies_.reply(request, wire::Status::kOk, request->h, {});
  serve(key, comm);
  return true;
}

bool Broker::fetch(const RequestPtr& request, Communicator& comm) {
  BodyReader body(request->body);
  body.u32();
  const std::uint64_t sequence = body.u64();
  const std::int32_t peer = body.i32();
  const std::uint8_t kind = body.u8();
  std::uint32_t member = 0;
  if (!body.complete() || !member_of(comm, request->actor, &member)) return false;
  if (peer >= static_cast<std::int32_t>(comm.members.size())) return false;
  const Key key = is_pair(kind) ? Key{comm.id, 0, sequence, peer, static_cast<std::int32_t>(member)}
                                : Key{comm.id, kind, sequence, -1, -1};
  request->doing = "fetches the payload of collective #" + std::to_string(sequence) + " of group '" + comm.label + "'";
  slots_[key].waiting.push_back({request, member, peer});
  serve(key, comm);
  return true;
}

void Broker::serve(const Key& key, Communicator& comm) {
  const auto found = slots_.find(key);
  Slot& slot = found->second;
  const bool pair = std::get<1>(key) == 0;
  for (auto at = slot.waiting.begin(); at != slot.waiting.end();) {
    const auto& [request, member, peer] = *at;
    const bool ready = peer < 0 ? slot.payloads.size() == comm.members.size()
                                : slot.payloads.count(static_cast<std::uint32_t>(peer)) != 0;
    if (!ready && !request->answered) {
      ++at;
      continue;
    }
    BodyWriter body;
    if (peer < 0) {
      body.u32(static_cast<std::uint32_t>(slot.payloads.size()));
      for (const auto& [from, payload] : slot.payloads) body.text(payload);
    } else if (ready) {
      body.u32(1).text(slot.payloads[static_cast<std::uint32_t>(peer)]);
    }
    replies_.reply(request, wire::Status::kOk, request->h, body.take());
    slot.fetched.insert(member);
    at = slot.waiting.erase(at);
  }
  if (!slot.waiting.empty()) return;
  // Who reads: the receiver of a pair, the root of a reduce or gather, all but the root of a broadcast, else everybody.
  const auto kind = static_cast<wire::CollectiveKind>(std::get<1>(key));
  std::size_t readers = comm.members.size();
  if (pair || kind == wire::CollectiveKind::kReduce || kind == wire::CollectiveKind::kGather) readers = 1;
  if (kind == wire::CollectiveKind::kBroadcast || kind == wire::CollectiveKind::kScatter)
    readers = comm.members.size() - 1;
  if (slot.fetched.size() >= readers) slots_.erase(found);
}

void Broker::forget(std::uint32_t comm) {
  for (auto at = slots_.lower_bound({comm, 0, 0, INT32_MIN, INT32_MIN});
       at != slots_.end() && std::get<0>(at->first) == comm;) {
    at = at->second.waiting.empty() ? slots_.erase(at) : std::next(at);
  }
}

}  // namespace phantora::core
