#include "locks.hpp"

#include <algorithm>

#include "model.hpp"

namespace phantora::core {

using wire::Status;

std::uint64_t Locks::holder_of(const Request& request) {
  return request.actor != nullptr ? holder_of_actor(request.actor->index) : holder_of_connection(request.connection);
}

bool Locks::free_for(const Lock& lock, std::uint64_t holder, bool shared) {
  return std::all_of(lock.holders.begin(), lock.holders.end(),
                     [&](const auto& held) { return held.first == holder || (shared && held.second); });
}

bool Locks::execute(const RequestPtr& request, Instant now) {
  BodyReader body(request->body);
  const std::string key = body.text();
  const std::uint64_t holder = holder_of(*request);
  if (request->type == wire::MessageType::kUnlock) {
    if (!body.complete()) return false;
    Lock& lock = locks_[key];
    lock.holders.erase(holder);
    replies_.reply(request, Status::kOk, resume_at(*request, 0), {});
    grant(lock, now);
    return true;
  }

  const bool shared = body.u8() != 0;
  const bool only_try = body.u8() != 0;
  const std::uint64_t timeout_ns = body.u64();
  if (!body.complete()) return false;
  Lock& lock = locks_[key];
  std::erase_if(lock.queue, [](const Waiting& waiting) { return waiting.request->answered; });
  const bool taken = lock.queue.empty() && free_for(lock, holder, shared);
  if (taken) lock.holders[holder] = shared;
  if (taken || only_try) {
    replies_.reply(request, Status::kOk, resume_at(*request, 0), BodyWriter().u8(taken ? 1 : 0).take());
    return true;
  }
  request->doing = "waits for the lock '" + key + "'";
  lock.queue.push_back({request, shared});
  replies_.on_timeout(request, timeout_ns, [this, request] {
    replies_.reply(request, Status::kTimeout, resume_at(*request, 0), BodyWriter().u8(0).take());
  });
  return true;
}

void Locks::grant(Lock& lock, Instant now) {
  while (!lock.queue.empty()) {
    const Waiting first = lock.queue.front();
    if (!first.request->answered) {
      const std::uint64_t holder = holder_of(*first.request);
      if (!free_for(lock, holder, first.shared)) return;
      lock.holders[holder] = first.shared;
      replies_.reply(first.request, Status::kOk, resume_at(*first.request, now), BodyWriter().u8(1).take());
    }
    lock.queue.pop_front();
  }
}

void Locks::release_all(std::uint64_t holder, Instant now) {
  for (auto& [key, lock] : locks_) {
    std::erase_if(lock.queue, [&](const Waiting& waiting) { return holder_of(*waiting.request) == holder; });
    if (lock.holders.erase(holder) != 0) grant(lock, now);
  }
}

}  // namespace phantora::core
