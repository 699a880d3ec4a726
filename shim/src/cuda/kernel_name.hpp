// Names of kernels, as everything of Phantora's sees them.
#pragma once

#include <string>
#include <string_view>

namespace phantora::cuda {

// A mangled name without what only says which run of nvcc made it. Into the name of an anonymous namespace nvcc puts
// hashes of the build and the number of a process; of those the source file's name stays. So builds of one source have
// one name.
std::string without_build(std::string_view mangled);

}  // namespace phantora::cuda
