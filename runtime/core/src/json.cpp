#include "json.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace phantora::core {
namespace {

// Names and notes come from ranks and may hold any bytes: what is not valid UTF-8 becomes U+FFFD.
std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char first = byte(at);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t index = 1; index < length; ++index) {
    if ((byte(at + index) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(at + 1) < 0xa0) return 0;
  if (first == 0xed && byte(at + 1) > 0x9f) return 0;
  if (first == 0xf0 && byte(at + 1) < 0x90) return 0;
  if (first == 0xf4 && byte(at + 1) > 0x8f) return 0;
  return length;
}

void write_text(std::string& out, const std::string& text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
      ++at;
    } else if (const std::size_t length = utf8_length(text, at); length > 0) {
      out.append(text, at, length);
      at += length;
    } else {
      out += "\\ufffd";
      ++at;
    }
  }
  out += '"';
}

}  // namespace

Json& Json::set(std::string key, Json value) {
  std::get<Object>(value_).emplace_back(std::move(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

std::string Json::text() const {
  std::string out;
  write(out);
  return out;
}

void Json::write(std::string& out) const {
  if (std::holds_alternative<std::monostate>(value_)) {
    out += "null";
  } else if (const auto* truth = std::get_if<bool>(&value_)) {
    out += *truth ? "true" : "false";
  } else if (const auto* integer = std::get_if<std::int64_t>(&value_)) {
    out += std::to_string(*integer);
  } else if (const auto* natural = std::get_if<std::uint64_t>(&value_)) {
    out += std::to_string(*natural);
  } else if (const auto* real = std::get_if<double>(&value_)) {
    char digits[40];
    const auto end = std::to_chars(digits, digits + sizeof digits, std::isfinite(*real) ? *real : 0.0).ptr;
    out.append(digits, end);
  } else if (const auto* words = std::get_if<std::string>(&value_)) {
    write_text(out, *words);
  } else if (const auto* array = std::get_if<Array>(&value_)) {
    out += '[';
    for (std::size_t index = 0; index < array->size(); ++index) {
      if (index > 0) out += ", ";
      (*array)[index].write(out);
    }
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : std::get<Object>(value_)) {
      if (!first) out += ", ";
      first = false;
      write_text(out, key);
      out += ": ";
      value.write(out);
    }
    out += '}';
  }
}

}  // namespace phantora::core
