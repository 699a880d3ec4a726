// Is a process idle? Looks at /proc: no thread of it or of its descendants runs, waits for a disk, or has used CPU time
// since the last look.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace phantora::core {

class ProcessWatch {
 public:
  // Takes one picture of the process table; `idle` then compares with the previous picture.
  void look();
  // True when nothing of `pid` ran between the last two looks at it. The first look at a process is never idle.
  bool idle(std::uint32_t pid);
  // Cheaper than a look: does one of its own threads run right now?
  static bool runs_now(std::uint32_t pid);
  bool has_children(std::uint32_t pid) const { return children_.count(pid) != 0; }

 private:
  struct Usage {
    std::uint64_t cpu_ns = 0;
    std::uint64_t look = 0;
    bool idle = false;
  };
  bool usage(std::uint32_t pid, std::uint64_t* cpu_ns) const;  // false: something runs or is about to

  std::uint64_t looks_ = 0;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> children_;
  std::map<std::uint32_t, Usage> last_;
};

}  // namespace phantora::core
