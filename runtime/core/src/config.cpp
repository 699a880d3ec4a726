#include "config.hpp"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace phantora::core {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string without_separators(const std::string& text) {
  std::string digits;
  for (char c : text) {
    if (c != '_') digits.push_back(c);
  }
  return digits;
}

}  // namespace

Config Config::from_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(path + ": cannot be read: " + std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return from_text(text.str(), path);
}

Config Config::from_text(std::string_view text, std::string origin) {
  Config config;
  config.origin_ = std::move(origin);
  std::uint32_t line_number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    ++line_number;
    line = trim(line);
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find('=');
    const std::string where = config.origin_ + ":" + std::to_string(line_number) + ": ";
    if (equals == std::string_view::npos)
      throw ConfigError(where + "expected `name = value`, found `" + std::string(line) + "`");
    const std::string name(trim(line.substr(0, equals)));
    if (name.empty()) throw ConfigError(where + "a name is missing before `=`");
    const auto [at, added] =
        config.values_.try_emplace(name, Value{std::string(trim(line.substr(equals + 1))), line_number});
    if (!added) throw ConfigError(where + "`" + name + "` was set before, in line " + std::to_string(at->second.line));
  }
  return config;
}

void Config::fail(const std::string& name, const Value& value, const char* wanted) const {
  throw ConfigError(origin_ + ":" + std::to_string(value.line) + ": `" + name + "` must be " + wanted + ", found `" +
                    value.text + "`");
}

std::string Config::get(const std::string& name, const std::string& fallback) const {
  const auto at = values_.find(name);
  return at == values_.end() ? fallback : at->second.text;
}

std::uint64_t Config::get_u64(const std::string& name, std::uint64_t fallback) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return fallback;
  const std::string digits = without_separators(at->second.text);
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(digits.c_str(), &end, 0);
  if (digits.empty() || digits[0] == '-' || *end != '\0' || errno != 0)
    fail(name, at->second, "a whole number of at least 0");
  return value;
}

std::int64_t Config::get_i64(const std::string& name, std::int64_t fallback) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return fallback;
  const std::string digits = without_separators(at->second.text);
  char* end = nullptr;
  errno = 0;
  const std::int64_t value = std::strtoll(digits.c_str(), &end, 0);
  if (digits.empty() || *end != '\0' || errno != 0) fail(name, at->second, "a whole number");
  return value;
}

double Config::get_f64(const std::string& name, double fallback) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return fallback;
  const std::string digits = without_separators(at->second.text);
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0' || !std::isfinite(value)) fail(name, at->second, "a number");
  return value;
}

std::string Config::require(const std::string& name) const {
  if (!has(name)) throw ConfigError(origin_ + ": `" + name + "` is missing");
  return get(name);
}

std::uint64_t Config::require_u64(const std::string& name) const {
  if (!has(name)) throw ConfigError(origin_ + ": `" + name + "` is missing");
  return get_u64(name);
}

std::vector<std::string> Config::names(std::string_view prefix) const {
  std::vector<std::string> found;
  for (auto at = values_.lower_bound(std::string(prefix)); at != values_.end() && at->first.starts_with(prefix); ++at) {
    found.push_back(at->first);
  }
  return found;
}

}  // namespace phantora::core
