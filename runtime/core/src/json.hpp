// A small JSON value for the report and the event stream: keys keep the order in which they were added.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace phantora::core {

class Json {
 public:
  Json() = default;  // null
  Json(bool value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  template <typename Integer>
    requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>)
  Json(Integer value)
      : value_(static_cast<std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>>(value)) {}
  static Json object() {
    Json json;
    json.value_ = Object{};
    return json;
  }
  static Json array() {
    Json json;
    json.value_ = Array{};
    return json;
  }
  // On an object: adds a key (which must be new).
  Json& set(std::string key, Json value);
  // On an array.
  Json& push(Json value);
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  std::string text() const;

 private:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  void write(std::string& out) const;
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
};

}  // namespace phantora::core
