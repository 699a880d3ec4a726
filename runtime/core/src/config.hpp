// core.conf: flat UTF-8 text, one `name = value` a line; a line that starts with `#` is a comment (a path may have one
// in it). The supervisor writes it from the profiles; every number the core uses is in it, so that one file reproduces
// a run.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace phantora::core {

// What is wrong with a configuration: says the file, the line and the key.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Config {
 public:
  Config() = default;

  // Throws ConfigError when the file cannot be read, a line has no `=`, or a name occurs twice.
  static Config from_file(const std::string& path);
  static Config from_text(std::string_view text, std::string origin = "core.conf");

  bool has(const std::string& name) const { return values_.count(name) != 0; }
  std::string get(const std::string& name, const std::string& fallback = "") const;
  // Throw ConfigError when the value is there but is no number of that type. Integers may have `_` between digits.
  std::uint64_t get_u64(const std::string& name, std::uint64_t fallback = 0) const;
  std::int64_t get_i64(const std::string& name, std::int64_t fallback = 0) const;
  double get_f64(const std::string& name, double fallback = 0.0) const;
  // Throws ConfigError when the name is missing.
  std::string require(const std::string& name) const;
  std::uint64_t require_u64(const std::string& name) const;
  // All names that start with `prefix`, sorted.
  std::vector<std::string> names(std::string_view prefix) const;
  const std::string& origin() const { return origin_; }

  void set(const std::string& name, std::string value) { values_[name] = {std::move(value), 0}; }

 private:
  struct Value {
    std::string text;
    std::uint32_t line = 0;
  };
  [[noreturn]] void fail(const std::string& name, const Value& value, const char* wanted) const;

  std::map<std::string, Value> values_;
  std::string origin_ = "core.conf";
};

}  // namespace phantora::core
