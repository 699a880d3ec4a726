// The shared segment: made here, mapped by every rank. Layout in phantora/wire.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "config.hpp"
#include "phantora/wire.hpp"
#include "time.hpp"

namespace phantora::core {

class Segment {
 public:
  // Makes the memfd and fills the header from the configuration. Throws ConfigError or std::system_error.
  explicit Segment(const Config& config);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // What ranks share. Any of them may have overwritten it: constants are read from constants() instead.
  wire::RunHeader& header() { return *reinterpret_cast<wire::RunHeader*>(base_); }
  // The header as it was filled: all but the atomics at its end.
  const wire::RunHeader& constants() const { return *reinterpret_cast<const wire::RunHeader*>(constants_); }
  wire::DeviceState& device(std::uint32_t rank);
  wire::ActorBlock& actor(std::uint32_t index);
  const wire::Record* ring(std::uint32_t index);
  // Remembers that the core knows this name, so that ranks need not send it again.
  void add_name(std::uint64_t hash);
  int fd() const { return fd_; }
  std::string path() const;

 private:
  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  alignas(wire::RunHeader) std::byte constants_[sizeof(wire::RunHeader)] = {};
};

// futex(2) on words that other processes share.
void futex_wake_all(std::atomic<std::uint32_t>& word);
// Waits while `word` holds `expected`, for at most `timeout_ns` of real time.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns);
std::uint64_t real_now_ns();

}  // namespace phantora::core
