#include "kernel_label.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace phantora::core {
namespace {

constexpr std::size_t kLongest = 80;
constexpr std::size_t kLongestMangled = 8192;  // a hostile name is not worth more

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && is_word(text[at])) ++at;
    found.push_back(text.substr(begin, at - begin));
  }
  return found;
}

// The last word before the first template bracket or argument list.
std::string_view function_name(std::string_view demangled) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::size_t from = 0;
  for (std::size_t at; (at = demangled.find(kAnonymous, from)) != std::string_view::npos;) {
    const std::size_t open = demangled.find_first_of("<(", from);
    if (open < at) break;
    from = at + kAnonymous.size();
  }
  const auto before = words(demangled.substr(0, demangled.find_first_of("<(", from)));
  return before.empty() ? demangled : before.back();
}

}  // namespace

std::string short_kernel_name(const std::string& name) {
  std::string label = name;
  if (name.rfind("_Z", 0) == 0 && name.size() <= kLongestMangled) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                           &std::free);
    if (status == 0 && text != nullptr) {
      const std::string_view demangled = text.get();
      label = function_name(demangled);
      const std::size_t arguments = demangled.find('<');
      std::string_view functor;
      if (arguments != std::string_view::npos) {
        for (std::string_view word : words(demangled.substr(arguments))) {
          const bool named =
              word.find("unctor") != std::string_view::npos || word.find("_kernel_cuda") != std::string_view::npos;
          if (named && word != "BinaryFunctor" && word != "UnaryFunctor") functor = word;
        }
      }
      if (!functor.empty() && functor != label) label.append(1, ' ').append(functor);
    }
  }
  if (label.size() > kLongest) label.resize(kLongest);
  return label;
}

}  // namespace phantora::core
