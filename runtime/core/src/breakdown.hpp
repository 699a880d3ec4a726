// What a rank's time went to: one sweep over the edges of its busy intervals. At every moment exactly one of four
// holds, in this priority: compute (a kernel or copy runs), exposed communication (only communication runs, waiting for
// late peers included), host (the GPU is idle and the host works), idle (both wait). So the shares of a step add up
// exactly.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "time.hpp"

namespace phantora::core {

struct Shares {
  Duration compute = 0, communication = 0, host = 0, idle = 0;
  Duration total() const { return compute + communication + host + idle; }
  Shares operator-(const Shares& other) const {
    return {compute - other.compute, communication - other.communication, host - other.host, idle - other.idle};
  }
};

class Breakdown {
 public:
  // `key` names what the exposure is attributed to (communicator and op).
  void add_compute(Instant start, Instant end);
  void begin_communication(Instant at, std::uint64_t key);
  void end_communication(Instant began, Instant at, std::uint64_t key);
  void add_host_wait(Instant start, Instant end);
  void begin_host_wait(Instant at);
  void end_host_wait(Instant at);
  void add_boundary(Instant at, std::uint64_t id);

  // Everything before `frontier` is known: sweep up to there.
  void advance(Instant frontier);
  // Shares from time 0 to the boundary, once the frontier has passed it.
  const Shares* at_boundary(std::uint64_t id) const;
  void forget_boundaries_before(std::uint64_t id);
  Duration exposed(std::uint64_t key) const;
  std::size_t pending() const { return edges_.size(); }

 private:
  enum class What : std::uint8_t { kCompute, kCommunication, kHostWait, kBoundary };
  struct Edge {
    Instant at;
    std::uint64_t key;
    Instant began;
    What what;
    std::int8_t delta;
  };
  void sweep_to(Instant at);

  std::vector<Edge> edges_, ready_;
  Instant cursor_ = 0;
  std::int64_t computing_ = 0, waiting_ = 0;
  std::map<std::pair<Instant, std::uint64_t>, std::int64_t>
      communicating_;  // (began, key): the oldest bears the exposure
  std::unordered_map<std::uint64_t, Duration> exposed_;
  std::map<std::uint64_t, Shares> boundaries_;
  Shares totals_;
};

}  // namespace phantora::core
