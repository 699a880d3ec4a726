// Key-value stores (torch's TCPStore and its kin): exact, ordered by (H, rank), and nameable in a hang.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "request.hpp"

namespace phantora::core {

class Stores {
 public:
  explicit Stores(Replies& replies) : replies_(replies) {}
  // Carries out one store message at `now`; false when its body is malformed.
  bool execute(const RequestPtr& request, Instant now);
  void drop_waiters_of(const Request& request);

 private:
  struct Value {
    Bytes bytes;
    Instant set_at = 0;
  };
  struct Waiter {
    RequestPtr request;
    std::vector<std::string> keys;
    bool get = false;  // answers with the value of the only key
  };
  struct Store {
    std::map<std::string, Value> values;
    std::list<Waiter> waiters;
  };
  void set(Store& store, const std::string& key, Bytes bytes, Instant now);
  void wait(const std::string& name, Store& store, Waiter waiter, std::uint64_t timeout_ns);
  bool answer_if_ready(Store& store, const Waiter& waiter);

  Replies& replies_;
  std::map<std::string, Store> stores_;
};

}  // namespace phantora::core
