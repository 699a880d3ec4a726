#include "stores.hpp"

#include <cstdlib>

namespace phantora::core {

using wire::MessageType;
using wire::Status;

bool Stores::execute(const RequestPtr& request, Instant now) {
  BodyReader body(request->body);
  const std::string name = body.text();
  if (!body.ok()) return false;
  Store& store = stores_[name];
  const auto done = [&](Bytes bytes = {}) {
    replies_.reply(request, Status::kOk, resume_at(*request, 0), std::move(bytes));
  };

  switch (request->type) {
    case MessageType::kStoreSet: {
      const std::string key = body.text();
      Bytes value = body.text();
      if (!body.complete()) return false;
      set(store, key, std::move(value), now);
      done();
      return true;
    }
    case MessageType::kStoreAppend: {
      const std::string key = body.text();
      const Bytes value = body.text();
      if (!body.complete()) return false;
      const auto at = store.values.find(key);
      set(store, key, at == store.values.end() ? value : at->second.bytes + value, now);
      done();
      return true;
    }
    case MessageType::kStoreGet: {
      const std::string key = body.text();
      const std::uint64_t timeout_ns = body.u64();
      if (!body.complete()) return false;
      wait(name, store, {request, {key}, true}, timeout_ns);
      return true;
    }
    case MessageType::kStoreWait: {
      auto keys = body.texts();
      const std::uint64_t timeout_ns = body.u64();
      if (!body.complete()) return false;
      wait(name, store, {request, std::move(keys), false}, timeout_ns);
      return true;
    }
    case MessageType::kStoreAdd: {
      const std::string key = body.text();
      const std::int64_t amount = body.i64();
      if (!body.complete()) return false;
      const auto at = store.values.find(key);
      const std::int64_t before = at == store.values.end() ? 0 : std::strtoll(at->second.bytes.c_str(), nullptr, 10);
      const std::int64_t sum =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(before) + static_cast<std::uint64_t>(amount));
      set(store, key, std::to_string(sum), now);  // as TCPStore keeps counters: decimal text
      done(BodyWriter().i64(sum).take());
      return true;
    }
    case MessageType::kStoreCheck: {
      const auto keys = body.texts();
      if (!body.complete()) return false;
      bool all = true;
      for (const auto& key : keys) all = all && store.values.count(key) != 0;
      done(BodyWriter().u8(all ? 1 : 0).take());
      return true;
    }
    case MessageType::kStoreDelete: {
      const std::string key = body.text();
      if (!body.complete()) return false;
      done(BodyWriter().u8(store.values.erase(key) != 0 ? 1 : 0).take());
      return true;
    }
    case MessageType::kStoreCompareSet: {
      const std::string key = body.text();
      const Bytes expected = body.text();
      Bytes desired = body.text();
      if (!body.complete()) return false;
      // TCPStore's rule: a missing key is set when nothing is expected, and else answers with what was expected.
      const auto at = store.values.find(key);
      Bytes result;
      if (at == store.values.end()) {
        result = expected.empty() ? desired : expected;
        if (expected.empty()) set(store, key, std::move(desired), now);
      } else if (at->second.bytes == expected) {
        result = desired;
        set(store, key, std::move(desired), now);
      } else {
        result = at->second.bytes;
      }
      done(BodyWriter().text(result).take());
      return true;
    }
    case MessageType::kStoreCount:
      if (!body.complete()) return false;
      done(BodyWriter().u64(store.values.size()).take());
      return true;
    case MessageType::kStoreList: {
      if (!body.complete()) return false;
      std::vector<std::string> keys;
      for (const auto& [key, value] : store.values) keys.push_back(key);
      done(BodyWriter().texts(keys).take());
      return true;
    }
    default:
      return false;
  }
}

void Stores::set(Store& store, const std::string& key, Bytes bytes, Instant now) {
  store.values[key] = {std::move(bytes), now};
  for (auto at = store.waiters.begin(); at != store.waiters.end();) {
    at = at->request->answered || answer_if_ready(store, *at) ? store.waiters.erase(at) : std::next(at);
  }
}

bool Stores::answer_if_ready(Store& store, const Waiter& waiter) {
  Instant cause = 0;
  for (const auto& key : waiter.keys) {
    const auto at = store.values.find(key);
    if (at == store.values.end()) return false;
    cause = later(cause, at->second.set_at);
  }
  Bytes body;
  if (waiter.get) body = BodyWriter().text(store.values[waiter.keys[0]].bytes).take();
  replies_.reply(waiter.request, Status::kOk, resume_at(*waiter.request, cause), std::move(body));
  return true;
}

void Stores::wait(const std::string& name, Store& store, Waiter waiter, std::uint64_t timeout_ns) {
  if (answer_if_ready(store, waiter)) return;
  std::string missing;
  for (const auto& key : waiter.keys) {
    if (store.values.count(key) == 0) missing += (missing.empty() ? "'" : ", '") + key + "'";
  }
  const RequestPtr request = waiter.request;
  request->doing = "waits for key " + missing + " of store '" + name + "'";
  store.waiters.push_back(std::move(waiter));
  replies_.on_timeout(request, timeout_ns, [this, request] {
    replies_.add_note(who(*request) + " " + request->doing + ": timed out");
    replies_.reply(request, Status::kTimeout, resume_at(*request, 0), {});
  });
}

void Stores::drop_waiters_of(const Request& request) {
  for (auto& [name, store] : stores_) {
    store.waiters.remove_if([&](const Waiter& waiter) { return waiter.request.get() == &request; });
  }
}

}  // namespace phantora::core
