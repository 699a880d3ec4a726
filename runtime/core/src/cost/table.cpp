#include "table.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "../config.hpp"
#include "math.hpp"

namespace phantora::cost {
namespace {

// Reads a table line by line and knows where it is, for messages.
class Reader {
 public:
  Reader(const std::string& path, const std::string& kind) : path_(path), file_(path) {
    if (!file_) throw core::ConfigError(path + ": the table cannot be read");
    std::string line;
    if (!next(line) || line != "phantora-table 1 " + kind) fail("expected `phantora-table 1 " + kind + "`");
  }
  bool next(std::string& line) {
    while (std::getline(file_, line)) {
      ++line_number_;
      if (!line.empty() && line[0] != '#') return true;
    }
    return false;
  }
  // The words after the first, which must be `word`.
  std::istringstream after(const std::string& word) {
    std::string line, found;
    if (!next(line)) fail("the file ends where `" + word + "` was expected");
    std::istringstream words(line);
    words >> found;
    if (found != word) fail("expected `" + word + "`, found `" + found + "`");
    return words;
  }
  template <typename T>
  std::vector<T> numbers(std::istringstream words) {
    std::vector<T> values;
    T value;
    while (words >> value) values.push_back(value);
    if (!words.eof()) fail("a number was expected");
    return values;
  }
  Axis axis(const std::string& word) {
    auto values = numbers<std::uint64_t>(after(word));
    if (values.size() < 2) fail("`" + word + "` needs two or more values");
    if (values[0] == 0) fail("`" + word + "` starts at 0");
    for (std::size_t i = 1; i < values.size(); ++i) {
      if (values[i] <= values[i - 1]) fail("`" + word + "` is not increasing");
    }
    return Axis(std::move(values));
  }
  template <typename T>
  void row(std::size_t count, std::vector<T>& into) {
    std::string line;
    if (!next(line)) fail("the file ends inside a grid");
    auto values = numbers<T>(std::istringstream(line));
    if (values.size() != count)
      fail("expected " + std::to_string(count) + " values, found " + std::to_string(values.size()));
    into.insert(into.end(), values.begin(), values.end());
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw core::ConfigError(path_ + ":" + std::to_string(line_number_) + ": " + what);
  }

 private:
  std::string path_;
  std::ifstream file_;
  std::size_t line_number_ = 0;
};

}  // namespace

Axis::Axis(std::vector<std::uint64_t> values) : values_(std::move(values)) {
  logs_.reserve(values_.size());
  for (std::uint64_t value : values_) logs_.push_back(log2_exact(static_cast<double>(value)));
}

AxisPosition Axis::find(std::uint64_t value) const {
  AxisPosition position;
  if (value <= values_.front()) {
    position.inside = position.exact = value == values_.front();
    return position;
  }
  if (value >= values_.back()) {
    position.index = values_.size() - 2;
    position.weight = 1.0;
    position.inside = position.exact = value == values_.back();
    return position;
  }
  const auto upper = std::upper_bound(values_.begin(), values_.end(), value);
  position.index = static_cast<std::size_t>(upper - values_.begin()) - 1;
  position.exact = values_[position.index] == value;
  if (!position.exact) {
    const double low = logs_[position.index], high = logs_[position.index + 1];
    position.weight = (log2_exact(static_cast<double>(value)) - low) / (high - low);
  }
  return position;
}

GemmTable load_gemm_table(const std::string& path) {
  GemmTable table;
  if (path.empty()) return table;
  Reader reader(path, "gemm");
  std::string line;
  while (reader.next(line)) {
    std::istringstream words(line);
    std::string word, name;
    words >> word >> name;
    if (word != "grid" || name.empty()) reader.fail("expected `grid <type>`");
    GemmGrid grid;
    grid.m = reader.axis("m");
    grid.n = reader.axis("n");
    grid.k = reader.axis("k");
    for (std::size_t i = 0; i < grid.m.size() * grid.n.size(); ++i) reader.row(grid.k.size(), grid.ns);
    table[name] = std::move(grid);
  }
  return table;
}

AttentionTable load_attention_table(const std::string& path) {
  AttentionTable table;
  if (path.empty()) return table;
  Reader reader(path, "attention");
  std::string line;
  while (reader.next(line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "grid") {
      std::uint32_t head_dim = 0;
      if (!(words >> head_dim)) reader.fail("expected `grid <head size>`");
      AttentionGrid grid;
      grid.length = reader.axis("length");
      grid.heads = reader.axis("heads");
      for (std::size_t i = 0; i < grid.length.size(); ++i) reader.row(grid.heads.size(), grid.ns);
      table.grids[head_dim] = std::move(grid);
    } else if (word == "published") {
      std::string direction;
      std::uint32_t head_dim = 0;
      int causal = 0;
      if (!(words >> direction >> head_dim >> causal))
        reader.fail("expected `published <direction> <head size> <causal>`");
      AttentionCurve curve;
      curve.length = reader.axis("length");
      curve.tflops = reader.numbers<double>(reader.after("tflops"));
      if (curve.tflops.size() != curve.length.size()) reader.fail("`tflops` and `length` differ in number");
      for (double value : curve.tflops) {
        if (!(value > 0.0)) reader.fail("a speed is not positive");
      }
      table.published[{direction, head_dim, causal != 0}] = std::move(curve);
    } else {
      reader.fail("expected `grid` or `published`, found `" + word + "`");
    }
  }
  return table;
}

NcclTable load_nccl_table(const std::string& path) {
  NcclTable table;
  if (path.empty()) return table;
  Reader reader(path, "nccl");
  std::string line;
  while (reader.next(line)) {
    std::istringstream words(line);
    std::string word, op;
    std::uint32_t gpus = 0;
    if (!(words >> word >> op >> gpus) || word != "curve") reader.fail("expected `curve <op> <GPUs>`");
    NcclCurve curve;
    curve.bytes = reader.axis("bytes");
    curve.ns = reader.numbers<std::uint64_t>(reader.after("ns"));
    if (curve.ns.size() != curve.bytes.size()) reader.fail("`ns` and `bytes` differ in number");
    for (std::uint64_t value : curve.ns) {
      if (value == 0) reader.fail("a duration is 0");
    }
    table[{op, gpus}] = std::move(curve);
  }
  return table;
}

}  // namespace phantora::cost
