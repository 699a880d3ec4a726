// Host-side collectives and messages (gloo, barriers, object exchange over the host): blobs that carry the sender's
// clock.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <string>
#include <tuple>

#include "request.hpp"

namespace phantora::core {

class HostMessages {
 public:
  explicit HostMessages(Replies& replies) : replies_(replies) {}
  bool collective(const RequestPtr& request);
  // At once: the message may be received from the sender's H on.
  bool send(const RequestPtr& request);
  bool receive(const RequestPtr& request);
  // Groups that wait for members, for a hang: name, sequence, members that are in (rank in the group -> world rank),
  // size.
  struct Open {
    std::string group;
    std::uint64_t sequence;
    std::map<std::uint32_t, std::int64_t> in;
    std::uint32_t size;
  };
  std::vector<Open> open() const;

 private:
  struct Meeting {
    std::uint32_t size = 0;
    std::uint64_t cost_ns = 0;
    Instant latest = 0;
    std::map<std::uint32_t, std::pair<RequestPtr, Bytes>> members;
  };
  struct Message {
    Bytes bytes;
    Instant sent_at;
  };
  struct Receiver {
    RequestPtr request;
    Instant deadline;
    Instant decided = 0;        // of any sender: all messages up to here have been sent
    Instant looks_at = kNever;  // and the next look
  };
  // A channel whose name has a star for the sender's rank has receivers only: they take from all that fit.
  struct Channel {
    std::deque<Message> messages;
    std::list<Receiver> receivers;
  };
  void match(Channel& channel);
  void match_any(const std::string& name, std::uint64_t tag);

  Replies& replies_;
  std::map<std::pair<std::string, std::uint64_t>, Meeting> meetings_;
  std::map<std::pair<std::string, std::uint64_t>, Channel> channels_;
};

}  // namespace phantora::core
