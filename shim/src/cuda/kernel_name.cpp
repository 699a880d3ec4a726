#include "cuda/kernel_name.hpp"

#include <algorithm>
#include <cstddef>

namespace phantora::cuda {
namespace {

// Before a hash: of an anonymous namespace, and of what else is internal to a file.
constexpr std::string_view kMarks[] = {"_GLOBAL__N__", "_INTERNAL_"};
constexpr std::size_t kHashDigits = 8;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool take(std::string_view& text, std::string_view wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(wanted.size());
  return true;
}

bool take_hash(std::string_view& text) {
  if (text.size() < kHashDigits) return false;
  if (text.substr(0, kHashDigits).find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  text.remove_prefix(kHashDigits);
  return true;
}

std::size_t take_number(std::string_view& text) {
  std::size_t value = 0, digits = 0;
  for (; digits < text.size() && digits < 6 && is_digit(text[digits]); ++digits)
    value = value * 10 + static_cast<std::size_t>(text[digits] - '0');
  text.remove_prefix(digits);
  return value;
}

struct Mark {
  std::size_t at = std::string_view::npos;
  std::string_view text;
};

Mark first_mark(std::string_view mangled) {
  Mark found;
  for (const std::string_view mark : kMarks)
    if (const auto at = mangled.find(mark); at < found.at) found = {at, mark};
  return found;
}

// The file in "<mark><hash>_<length>_<file>[_<hash>[_<process>]]" without its mark; empty: the text is no such
// identifier.
std::string_view file_of(std::string_view text) {
  if (!take_hash(text) || !take(text, "_")) return {};
  const std::size_t length = take_number(text);
  if (!take(text, "_") || length == 0 || length > text.size()) return {};
  const std::string_view file = text.substr(0, length);
  text.remove_prefix(length);
  if (take(text, "_") && !take_hash(text)) return {};
  if (take(text, "_")) text.remove_prefix(std::min(text.size(), text.find_first_not_of("0123456789")));
  return text.empty() ? file : std::string_view{};
}

}  // namespace

std::string without_build(std::string_view mangled) {
  std::string result;
  for (Mark mark = first_mark(mangled); !mark.text.empty(); mark = first_mark(mangled)) {
    // The identifier's length stands before it; digits before that may end the name before ("3c1051_GLOBAL...").
    std::size_t first = mark.at, end = mark.at + mark.text.size(), length = 0, place = 1;
    std::string_view file;
    for (std::size_t at = mark.at; at > 0 && is_digit(mangled[at - 1]) && place <= 1000 && file.empty(); place *= 10) {
      length += static_cast<std::size_t>(mangled[--at] - '0') * place;
      if (mangled[at] == '0' || length <= mark.text.size() || length > mangled.size() - mark.at) continue;
      file = file_of(mangled.substr(mark.at + mark.text.size(), length - mark.text.size()));
      if (!file.empty()) first = at, end = mark.at + length;
    }
    result += mangled.substr(0, first);
    if (!file.empty()) result += std::to_string(mark.text.size() + file.size());
    result += file.empty() ? mangled.substr(first, end - first) : mark.text;
    result += file;
    mangled.remove_prefix(end);
  }
  return result += mangled;
}

}  // namespace phantora::cuda
