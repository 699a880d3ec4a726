// File locks by key: granted in (H, rank) order at max(own H, release time); shared holders together.
#pragma once

#include <list>
#include <map>
#include <string>

#include "request.hpp"

namespace phantora::core {

class Locks {
 public:
  explicit Locks(Replies& replies) : replies_(replies) {}
  bool execute(const RequestPtr& request, Instant now);
  // The holder ended at `now`: everything it held or waited for is free.
  void release_all(std::uint64_t holder, Instant now);
  // A lock belongs to a process (its actor), or to the connection of a detached one.
  static std::uint64_t holder_of(const Request& request);
  static std::uint64_t holder_of_actor(std::uint32_t index) { return index; }
  static std::uint64_t holder_of_connection(std::uint64_t id) { return id | 1ULL << 62; }

 private:
  struct Waiting {
    RequestPtr request;
    bool shared;
  };
  struct Lock {
    std::map<std::uint64_t, bool> holders;  // holder -> shared
    std::list<Waiting> queue;               // in (H, rank) order
  };
  static bool free_for(const Lock& lock, std::uint64_t holder, bool shared);
  void grant(Lock& lock, Instant now);

  Replies& replies_;
  std::map<std::string, Lock> locks_;
};

}  // namespace phantora::core
