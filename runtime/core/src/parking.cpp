#include "parking.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace phantora::core {
namespace {

// Helper threads that poll now and then use this little between two looks.
constexpr std::uint64_t kNoiseNs = 30'000;

bool read_file(const char* path, char* text, std::size_t room) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = read(fd, text, room - 1);
  close(fd);
  if (got <= 0) return false;
  text[got] = '\0';
  return true;
}

// State and parent from a /proc stat line.
bool parse_stat(const char* text, char* state, unsigned* parent) {
  const char* end = std::strrchr(text, ')');
  return end != nullptr && std::sscanf(end + 1, " %c %u", state, parent) == 2;
}

template <typename Visit>
void each_number(const char* folder, Visit visit) {
  DIR* directory = opendir(folder);
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0) {
      visit(static_cast<std::uint32_t>(std::strtoul(entry->d_name, nullptr, 10)));
    }
  }
  closedir(directory);
}

std::size_t threads(std::uint32_t pid) {
  char folder[48];
  std::snprintf(folder, sizeof folder, "/proc/%u/task", pid);
  std::size_t count = 0;
  each_number(folder, [&count](std::uint32_t) { ++count; });
  return count;
}

}  // namespace

void ProcessWatch::look() {
  ++looks_;
  children_.clear();
  const auto self = static_cast<std::uint32_t>(getpid());
  each_number("/proc", [this, self](std::uint32_t pid) {
    if (pid == self) return;  // busy looking, and nobody's work
    char path[48], text[512], state = 0;
    unsigned parent = 0;
    std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (!read_file(path, text, sizeof text) || !parse_stat(text, &state, &parent)) return;
    // A process whose first thread has ended while others are still on their way out keeps its descriptors open: what
    // waits for its end is not blocked for good.
    if ((state == 'Z' || state == 'X') && threads(pid) < 2) return;
    children_[parent].push_back(pid);
  });
}

bool ProcessWatch::usage(std::uint32_t pid, std::uint64_t* cpu_ns) const {
  char folder[48];
  std::snprintf(folder, sizeof folder, "/proc/%u/task", pid);
  bool quiet = true;
  each_number(folder, [&](std::uint32_t thread) {
    char path[80], text[512], state = 0;
    unsigned parent = 0;
    std::snprintf(path, sizeof path, "/proc/%u/task/%u/stat", pid, thread);
    if (read_file(path, text, sizeof text) && parse_stat(text, &state, &parent)) {
      if (state == 'R' || state == 'D') quiet = false;
    }
    std::snprintf(path, sizeof path, "/proc/%u/task/%u/schedstat", pid, thread);
    if (read_file(path, text, sizeof text)) *cpu_ns += std::strtoull(text, nullptr, 10);
  });
  const auto at = children_.find(pid);
  if (at != children_.end()) {
    for (std::uint32_t child : at->second) quiet = usage(child, cpu_ns) && quiet;
  }
  return quiet;
}

bool ProcessWatch::runs_now(std::uint32_t pid) {
  char folder[48];
  std::snprintf(folder, sizeof folder, "/proc/%u/task", pid);
  bool runs = false;
  each_number(folder, [&](std::uint32_t thread) {
    char path[80], text[512], state = 0;
    unsigned parent = 0;
    if (runs) return;
    std::snprintf(path, sizeof path, "/proc/%u/task/%u/stat", pid, thread);
    runs = read_file(path, text, sizeof text) && parse_stat(text, &state, &parent) && (state == 'R' || state == 'D');
  });
  return runs;
}

bool ProcessWatch::idle(std::uint32_t pid) {
  Usage& last = last_[pid];
  if (last.look == looks_) return last.idle;  // several actors of one process
  std::uint64_t cpu_ns = 0;
  const bool quiet = usage(pid, &cpu_ns);
  const bool comparable = last.look != 0 && last.look + 1 == looks_;
  const bool unchanged = comparable && cpu_ns >= last.cpu_ns && cpu_ns - last.cpu_ns <= kNoiseNs;
  last = {cpu_ns, looks_, quiet && unchanged};
  return last.idle;
}

}  // namespace phantora::core
