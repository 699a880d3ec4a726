// Kernel names for people.
#pragma once

#include <string>

namespace phantora::core {

// A mangled C++ name without namespaces, return types, argument lists, and all but the innermost functor of its
// template arguments; other names as they are. At most 80 characters.
std::string short_kernel_name(const std::string& name);

}  // namespace phantora::core
