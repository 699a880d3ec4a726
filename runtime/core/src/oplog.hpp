// The canonical op log: every op of every rank with its virtual start and end, in the total order
// (start, kind, source, per-source sequence). No pids, handles, pointers or real time, so equal runs give equal bytes.
//
// Format, version 1 (little-endian; `v` is an unsigned LEB128 number, `z` a zigzag LEB128 number):
//   8 bytes "PHNTLOG1", then items, each a tag byte and:
//   1 name    u64 hash, v length, text                                    before the first shape that uses it
//   2 source  v id, v rank, v child (0: the rank itself), v device, v stream + 1 (0: the host)
//   3 shape   v id, u8 RecordType, 9 x u64 words (layout of ops.cpp: the fields of the record's op)
//   4 comm    v id, v label length, label, v n, n x v world rank
//   5 op      v source, z sequence - previous one of this source, v shape, v start - previous op's start, v end -
//   start,
//             z start - issue; then for a collective: v sequence on its communicator, v group (n-th of this rank; 0
//             none), v start - arrival; for a stream wait: v source + 1 of the event's record (0: never recorded), v
//             its sequence
//   6 end     v end of the last op
// Host events (marks, sleeps, host work, exits) have stream 0 in `source` and count their own sequence. Waits and
// queries are not logged: whether a rank asks the core depends on what it already knows, which is a matter of real
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops.hpp"
#include "time.hpp"

namespace phantora::core {

struct LogSource {
  std::uint32_t rank = 0, child = 0, device = 0, stream_plus_one = 0;
  // Numbered in order of first use, which depends on real time; ordered in the log by what they are.
  std::uint64_t order() const {
    return static_cast<std::uint64_t>(rank) << 40 | static_cast<std::uint64_t>(child & 0xffff) << 24 |
           static_cast<std::uint64_t>(stream_plus_one & 0x1ffff) << 7 | (device & 0x7f);
  }
  std::uint32_t log_id = 0;
  std::uint64_t last_sequence = 0;
};

struct LogComm {
  std::string label;
  std::vector<std::uint32_t> ranks;
  bool defined = false;
};

struct LogEntry {
  Instant start = 0, end = 0, issue = 0;
  std::uint64_t order = 0;     // of the source
  std::uint64_t sequence = 0;  // of the source
  std::uint32_t source = 0, shape = 0;
  std::uint64_t extra[3] = {0, 0, 0};
};

class OpLog {
 public:
  // `fd` < 0: nothing is written, order and uniqueness are still checked.
  OpLog(int fd, OpTable& shapes, const Names& names);
  ~OpLog();

  std::uint32_t add_source(const LogSource& source);
  void add_comm(std::uint32_t id, LogComm comm);
  std::uint64_t order_of(std::uint32_t source) const { return sources_[source].order(); }
  void add(const LogEntry& entry) {
    waiting_.push_back(entry);
    last_end_ = later(last_end_, entry.end);
  }
  // No op that starts before `frontier` can come any more: write those. Cheap when there is little to do.
  void advance(Instant frontier, bool all);
  bool due() const { return waiting_.size() >= flush_at_; }
  void finish();
  // End of the last op so far: unlike the engine's clock, the same in equal runs.
  Instant last_end() const { return last_end_; }

  std::uint64_t ops_written() const { return ops_; }
  std::uint64_t bytes_written() const { return bytes_; }
  std::uint64_t order_errors() const { return order_errors_; }
  bool write_failed() const { return write_failed_; }

 private:
  void write(const LogEntry& entry);
  void define(OpShape& shape);
  void define_name(std::uint64_t hash);
  void flush();
  void put_u8(std::uint8_t value) { buffer_.push_back(static_cast<char>(value)); }
  void put_u64(std::uint64_t value);
  void put_v(std::uint64_t value);
  void put_z(std::int64_t value);
  void put_text(const std::string& text);

  int fd_;
  OpTable& shapes_;
  const Names& names_;
  std::vector<LogSource> sources_;
  std::vector<LogComm> comms_;
  std::unordered_map<std::uint64_t, bool> named_;
  std::vector<LogEntry> waiting_, ready_;
  std::size_t flush_at_ = 1U << 14;
  std::string buffer_;
  std::uint32_t shape_ids_ = 0, source_ids_ = 0;
  LogEntry previous_;
  Instant last_end_ = 0;
  std::uint64_t ops_ = 0, bytes_ = 0, order_errors_ = 0;
  bool write_failed_ = false, finished_ = false;
};

}  // namespace phantora::core
