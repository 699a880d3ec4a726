#include "breakdown.hpp"

#include <algorithm>

namespace phantora::core {

void Breakdown::add_compute(Instant start, Instant end) {
  // Kernels mostly follow each other without a gap: grow the last interval instead of adding two edges.
  if (edges_.size() >= 2) {
    Edge& last = edges_.back();
    if (last.what == What::kCompute && last.delta < 0 && last.at == start) {
      last.at = end;
      return;
    }
  }
  edges_.push_back({start, 0, 0, What::kCompute, 1});
  edges_.push_back({end, 0, 0, What::kCompute, -1});
}

void Breakdown::begin_communication(Instant at, std::uint64_t key) {
  edges_.push_back({at, key, at, What::kCommunication, 1});
}

void Breakdown::end_communication(Instant began, Instant at, std::uint64_t key) {
  edges_.push_back({at, key, began, What::kCommunication, -1});
}

void Breakdown::add_host_wait(Instant start, Instant end) {
  if (end <= start) return;
  begin_host_wait(start);
  end_host_wait(end);
}

void Breakdown::begin_host_wait(Instant at) { edges_.push_back({at, 0, 0, What::kHostWait, 1}); }
void Breakdown::end_host_wait(Instant at) { edges_.push_back({at, 0, 0, What::kHostWait, -1}); }

void Breakdown::add_boundary(Instant at, std::uint64_t id) { edges_.push_back({at, id, 0, What::kBoundary, 0}); }

void Breakdown::sweep_to(Instant at) {
  if (at <= cursor_) return;
  const Duration passed = at - cursor_;
  cursor_ = at;
  if (computing_ > 0) {
    totals_.compute += passed;
  } else if (!communicating_.empty()) {
    totals_.communication += passed;
    exposed_[communicating_.begin()->first.second] += passed;
  } else if (waiting_ == 0) {
    totals_.host += passed;
  } else {
    totals_.idle += passed;
  }
}

void Breakdown::advance(Instant frontier) {
  const auto middle =
      std::partition(edges_.begin(), edges_.end(), [frontier](const Edge& edge) { return edge.at >= frontier; });
  ready_.assign(middle, edges_.end());
  edges_.erase(middle, edges_.end());
  std::sort(ready_.begin(), ready_.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  for (const Edge& edge : ready_) {
    sweep_to(edge.at);
    switch (edge.what) {
      case What::kCompute:
        computing_ += edge.delta;
        break;
      case What::kHostWait:
        waiting_ += edge.delta;
        break;
      case What::kCommunication: {
        const auto at = communicating_.try_emplace({edge.began, edge.key}, 0).first;
        if ((at->second += edge.delta) == 0) communicating_.erase(at);
        break;
      }
      case What::kBoundary:
        boundaries_[edge.key] = totals_;
        break;
    }
  }
}

const Shares* Breakdown::at_boundary(std::uint64_t id) const {
  const auto at = boundaries_.find(id);
  return at == boundaries_.end() ? nullptr : &at->second;
}

void Breakdown::forget_boundaries_before(std::uint64_t id) {
  boundaries_.erase(boundaries_.begin(), boundaries_.lower_bound(id));
}

Duration Breakdown::exposed(std::uint64_t key) const {
  const auto at = exposed_.find(key);
  return at == exposed_.end() ? 0 : at->second;
}

}  // namespace phantora::core
