#include "host_messages.hpp"

#include "model.hpp"

namespace phantora::core {

using wire::Status;

namespace {

// `pattern` has a star for the sender's rank.
bool fits(const std::string& pattern, const std::string& name) {
  const auto star = pattern.find('*');
  if (star == std::string::npos || name.size() < pattern.size()) return false;
  const auto after = name.size() - (pattern.size() - star - 1);
  return name.compare(0, star, pattern, 0, star) == 0 && name.compare(after, name.npos, pattern, star + 1) == 0 &&
         name.find_first_not_of("0123456789", star) == after;
}

}  // namespace

bool HostMessages::collective(const RequestPtr& request) {
  BodyReader body(request->body);
  const std::string group = body.text();
  const std::uint64_t sequence = body.u64();
  const std::uint32_t size = body.u32();
  const std::uint32_t rank = body.u32();
  const std::uint64_t timeout_ns = body.u64();
  const std::uint64_t cost_ns = body.u64();
  Bytes blob = body.text();
  if (!body.complete() || size == 0 || rank >= size || cost_ns > kLatest) return false;

  const auto key = std::pair(group, sequence);
  Meeting& meeting = meetings_[key];
  if (meeting.size != 0 && meeting.size != size) return false;
  if (meeting.members.count(rank) != 0 && !meeting.members[rank].first->answered)
    return false;  // twice the same member
  meeting.size = size;
  meeting.cost_ns = std::max(meeting.cost_ns, cost_ns);
  meeting.latest = later(meeting.latest, request->h);
  meeting.members[rank] = {request, std::move(blob)};
  if (meeting.members.size() < size) {
    request->doing = "waits in host collective #" + std::to_string(sequence) + " of group '" + group + "'";
    replies_.on_timeout(request, timeout_ns, [this, request, key] {
      replies_.add_note(who(*request) + " " + request->doing + ": timed out");
      replies_.reply(request, Status::kTimeout, resume_at(*request, 0), {});
    });
    return true;
  }
  BodyWriter all;
  all.u32(size);
  for (const auto& [member, contribution] : meeting.members) all.text(contribution.second);
  const Bytes answer = all.take();
  const Instant done = meeting.latest + meeting.cost_ns;
  const auto members = std::move(meeting.members);
  meetings_.erase(key);
  for (const auto& [member, contribution] : members) {
    replies_.reply(contribution.first, Status::kOk, later(contribution.first->h, done), answer);
  }
  return true;
}

bool HostMessages::send(const RequestPtr& request) {
  BodyReader body(request->body);
  const std::string name = body.text();
  const std::uint64_t tag = body.u64();
  Bytes blob = body.text();
  if (!body.complete()) return false;
  Channel& channel = channels_[{name, tag}];
  channel.messages.push_back({std::move(blob), request->h});
  replies_.reply(request, Status::kOk, request->h, {});
  match(channel);
  for (const auto& [key, other] : channels_) {
    if (key.second == tag && !other.receivers.empty() && fits(key.first, name)) match_any(key.first, tag);
  }
  return true;
}

bool HostMessages::receive(const RequestPtr& request) {
  BodyReader body(request->body);
  const std::string name = body.text();
  const std::uint64_t tag = body.u64();
  const std::uint64_t timeout_ns = body.u64();
  if (!body.complete()) return false;
  request->doing = "waits for a message on channel '" + name + "' with tag " + std::to_string(tag);
  Channel& channel = channels_[{name, tag}];
  channel.receivers.push_back({request, timeout_ns >= kLatest ? kNever : request->h + timeout_ns});
  match(channel);
  if (request->answered) return true;
  replies_.on_timeout(request, timeout_ns, [this, request] {
    replies_.add_note(who(*request) + " " + request->doing + ": timed out");
    replies_.reply(request, Status::kTimeout, resume_at(*request, 0), {});
  });
  if (name.find('*') != std::string::npos) {
    channel.receivers.back().decided = request->h;
    match_any(name, tag);
  }
  return true;
}

void HostMessages::match(Channel& channel) {
  for (auto at = channel.receivers.begin(); at != channel.receivers.end() && !channel.messages.empty();) {
    if (at->request->answered) {
      at = channel.receivers.erase(at);
      continue;
    }
    Message& first = channel.messages.front();
    // It was sent after this receiver's time-out in virtual time, whatever came first in real time.
    if (at->request->driving && first.sent_at > at->deadline) {
      ++at;
      continue;
    }
    replies_.reply(at->request, Status::kOk, resume_at(*at->request, first.sent_at),
                   BodyWriter().text(first.bytes).take());
    channel.messages.pop_front();
    at = channel.receivers.erase(at);
  }
}

// The earliest message is taken, whichever arrives first in real time: until its time has come, an earlier one may
// still be sent.
void HostMessages::match_any(const std::string& name, std::uint64_t tag) {
  std::list<Receiver>& receivers = channels_[{name, tag}].receivers;
  receivers.remove_if([](const Receiver& receiver) { return receiver.request->answered; });
  for (Receiver& receiver : receivers) {
    Channel* first = nullptr;
    for (auto& [key, channel] : channels_) {
      if (key.second != tag || channel.messages.empty() || !fits(name, key.first)) continue;
      if (first == nullptr || channel.messages.front().sent_at < first->messages.front().sent_at) first = &channel;
    }
    if (first == nullptr) return;
    const RequestPtr request = receiver.request;
    const Instant sent_at = first->messages.front().sent_at;
    if (sent_at <= receiver.decided || !request->driving) {
      replies_.reply(request, Status::kOk, resume_at(*request, sent_at),
                     BodyWriter().text(first->messages.front().bytes).take());
      first->messages.pop_front();
    } else if (sent_at < receiver.looks_at) {
      receiver.looks_at = sent_at;
      replies_.on_timeout(request, sent_at - request->h, [this, request, sent_at, name, tag] {
        for (Receiver& each : channels_[{name, tag}].receivers) {
          if (each.request == request) each.decided = sent_at;
        }
        match_any(name, tag);
      });
    }
  }
}

std::vector<HostMessages::Open> HostMessages::open() const {
  std::vector<Open> found;
  for (const auto& [key, meeting] : meetings_) {
    Open open{key.first, key.second, {}, meeting.size};
    for (const auto& [member, contribution] : meeting.members) {
      const Actor* actor = contribution.first->actor;
      open.in[member] = actor == nullptr ? -1 : static_cast<std::int64_t>(actor->rank);
    }
    found.push_back(std::move(open));
  }
  return found;
}

}  // namespace phantora::core
