// Reads one actor's ring. The other side is not trusted: every record is copied out first, then checked in full
// (running number, checksum, type, every enumeration, every range), so that the engine only ever sees records that make
// sense.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "phantora/wire.hpp"

namespace phantora::core {

struct RingLimits {
  std::uint32_t slots = 0;
  std::uint32_t devices = 0;  // per node
};

class RingReader {
 public:
  RingReader(const wire::Record* ring, std::atomic<std::uint64_t>& head, std::atomic<std::uint64_t>& tail,
             RingLimits limits)
      : ring_(ring), head_(head), tail_(tail), limits_(limits) {}

  enum class Outcome { kEmpty, kRecord, kMalformed };
  // Takes the next record. After kMalformed the ring is dead: error() says why, and it never yields another record.
  Outcome next(wire::Record& record);
  // Frees what next() took for the producer; call after a batch.
  void release() { tail_.store(position_, std::memory_order_release); }
  bool has_more() const { return !dead_ && head_.load(std::memory_order_acquire) != position_; }
  std::uint64_t position() const { return position_; }
  std::uint32_t slot() const { return static_cast<std::uint32_t>(position_ % limits_.slots); }
  const std::string& error() const { return error_; }

 private:
  const wire::Record* ring_;
  std::atomic<std::uint64_t>& head_;
  std::atomic<std::uint64_t>& tail_;
  RingLimits limits_;
  std::uint64_t position_ = 0, seen_head_ = 0;
  bool dead_ = false;
  std::string error_;
};

// Empty when the record makes sense by itself; else what is wrong with it.
std::string check_record(const wire::Record& record, std::uint64_t index, const RingLimits& limits);
const char* record_type_name(wire::RecordType type);

}  // namespace phantora::core
