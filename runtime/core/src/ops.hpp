// Distinct GPU operations. A training run repeats the same few thousand launches over and over: each distinct one is
// costed once, counted, and defined once in the op log.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cost/cost.hpp"
#include "phantora/wire.hpp"
#include "time.hpp"

namespace phantora::core {

class Costs;

inline constexpr std::size_t kShapeWords = sizeof(wire::KernelOp) / 8;

// What an op is, without when and where it ran. Words are canonical: no padding, no handles, no pids.
struct OpShape {
  wire::RecordType type = wire::RecordType::kNone;
  std::array<std::uint64_t, kShapeWords> words{};
  cost::Cost cost{0, cost::Source::kUnknown, 0.0};  // collectives are costed when they start; marks cost nothing
  std::uint64_t launches = 0;                       // of ops that ran
  std::uint64_t busy_ns = 0;
  std::uint64_t spread_ppm() const { return static_cast<std::uint64_t>(cost.spread * 1e6 + 0.5); }
  std::uint32_t log_id = 0;  // 0: not yet defined in the op log
};

class OpTable {
 public:
  explicit OpTable(Costs& costs);
  // The shape of a record that runs on a stream (kernel, gemm, copy, memset) or is only logged (mark, host work, ...).
  std::uint32_t intern(const wire::Record& record);
  OpShape& operator[](std::uint32_t index) { return shapes_[index]; }
  const std::vector<OpShape>& shapes() const { return shapes_; }

 private:
  void grow();

  Costs& costs_;
  std::vector<OpShape> shapes_;
  std::vector<std::uint32_t> slots_;  // open addressing; index + 1, 0 empty
};

// Names by hash, as ranks sent them.
class Names {
 public:
  // False when the hash is not that of the text.
  bool add(std::uint64_t hash, const std::string& text);
  const std::string& get(std::uint64_t hash) const;

 private:
  std::unordered_map<std::uint64_t, std::string> names_;
};

// Where durations come from. One implementation asks the cost model; the other is for tests with closed forms.
class Costs {
 public:
  virtual ~Costs() = default;
  virtual cost::Cost kernel(const wire::KernelOp& op) = 0;
  virtual cost::Cost gemm(const wire::GemmOp& op) = 0;
  virtual cost::Cost copy(const wire::CopyOp& op) = 0;
  virtual cost::Cost memset(std::uint64_t bytes) = 0;
  virtual cost::Cost collective(const wire::CollectiveOp& op, const std::vector<std::uint32_t>& ranks,
                                std::uint32_t self) = 0;
};

// `core.costs = unit`: a kernel takes `elements` ns, a GEMM m*n*k*batch, a copy or memset its bytes, a collective its
// bytes; never below 1 ns. Otherwise the cost model.
std::unique_ptr<Costs> make_costs(const Config& config, const Names& names);

}  // namespace phantora::core
