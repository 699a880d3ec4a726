// The measured tables (profiles/tables/*.txt): a header line `phantora-table 1 <kind>`, `#` comments, blocks of
// numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace phantora::cost {

// Where `value` lies on a sorted axis: between index and index + 1, `weight` of the way in log space. Outside: the end,
// with inside = false.
struct AxisPosition {
  std::size_t index = 0;
  double weight = 0.0;
  bool inside = true;
  bool exact = false;
};

class Axis {
 public:
  Axis() = default;
  explicit Axis(std::vector<std::uint64_t> values);
  std::size_t size() const { return values_.size(); }
  std::uint64_t at(std::size_t i) const { return values_[i]; }
  const std::vector<std::uint64_t>& values() const { return values_; }
  AxisPosition find(std::uint64_t value) const;

 private:
  std::vector<std::uint64_t> values_;
  std::vector<double> logs_;
};

struct GemmGrid {
  Axis m, n, k;
  std::vector<std::uint32_t> ns;  // [m][n][k], 0 = not measured
  std::uint32_t at(std::size_t i, std::size_t j, std::size_t l) const { return ns[(i * n.size() + j) * k.size() + l]; }
};
using GemmTable = std::map<std::string, GemmGrid>;  // by data type: bf16, fp8

struct AttentionGrid {
  Axis length, heads;
  std::vector<std::uint64_t> ns;  // [length][heads], 0 = not measured
  std::uint64_t at(std::size_t i, std::size_t j) const { return ns[i * heads.size() + j]; }
};
struct AttentionCurve {
  Axis length;
  std::vector<double> tflops;
};
struct AttentionTable {
  std::map<std::uint32_t, AttentionGrid> grids;                                      // by head size
  std::map<std::tuple<std::string, std::uint32_t, bool>, AttentionCurve> published;  // direction, head size, causal
};

struct NcclCurve {
  Axis bytes;
  std::vector<std::uint64_t> ns;
};
using NcclTable = std::map<std::pair<std::string, std::uint32_t>, NcclCurve>;  // by op and GPUs

// Throw core::ConfigError naming file and line. An empty path gives an empty table.
GemmTable load_gemm_table(const std::string& path);
AttentionTable load_attention_table(const std::string& path);
NcclTable load_nccl_table(const std::string& path);

}  // namespace phantora::cost
