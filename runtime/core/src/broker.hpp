// Carries small payloads of NCCL collectives between ranks. It moves bytes only; time is the collective's own matter.
#pragma once

#include <map>
#include <set>
#include <tuple>

#include "model.hpp"
#include "request.hpp"

namespace phantora::core {

class Broker {
 public:
  explicit Broker(Replies& replies) : replies_(replies) {}
  bool post(const RequestPtr& request, Communicator& comm);
  // With `peer` -1: every member's payload, in member order. Send/recv: the payload `peer` sent to the caller. Else:
  // the payload of member `peer` alone (a broadcast's root).
  bool fetch(const RequestPtr& request, Communicator& comm);
  void forget(std::uint32_t comm);

 private:
  // comm, kind, sequence, receiver (-1: for all)
  using Key = std::tuple<std::uint32_t, std::uint8_t, std::uint64_t, std::int32_t, std::int32_t>;
  struct Slot {
    std::map<std::uint32_t, Bytes> payloads;  // by member
    std::set<std::uint32_t> fetched;          // members that have their answer
    struct Fetch {
      RequestPtr request;
      std::uint32_t member;
      std::int32_t peer;
    };
    std::vector<Fetch> waiting;
  };
  void serve(const Key& key, Communicator& comm);
  static bool member_of(const Communicator& comm, const Actor* actor, std::uint32_t* member);

  Replies& replies_;
  std::map<Key, Slot> slots_;
};

}  // namespace phantora::core
