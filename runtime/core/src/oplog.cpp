#include "oplog.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

namespace phantora::core {
namespace {

using wire::RecordType;

auto key(const LogEntry& entry, const OpTable& shapes) {
  return std::tuple(entry.start, shapes.shapes()[entry.shape].type, entry.order, entry.sequence);
}

}  // namespace

OpLog::OpLog(int fd, OpTable& shapes, const Names& names) : fd_(fd), shapes_(shapes), names_(names) {
  buffer_ = "PHNTLOG1";
}

OpLog::~OpLog() { flush(); }

std::uint32_t OpLog::add_source(const LogSource& source) {
  sources_.push_back(source);
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

void OpLog::add_comm(std::uint32_t id, LogComm comm) {
  if (comms_.size() <= id) comms_.resize(id + 1);
  comms_[id] = std::move(comm);
}

void OpLog::advance(Instant frontier, bool all) {
  // Sorting pays when much is ready; what is left over is looked at again, so wait until it has doubled.
  if (!all && waiting_.size() < flush_at_) return;
  const auto middle = std::partition(waiting_.begin(), waiting_.end(),
                                     [frontier](const LogEntry& entry) { return entry.start >= frontier; });
  ready_.assign(middle, waiting_.end());
  waiting_.erase(middle, waiting_.end());
  flush_at_ = std::max<std::size_t>(1U << 14, waiting_.size() * 2);
  std::sort(ready_.begin(), ready_.end(),
            [this](const LogEntry& a, const LogEntry& b) { return key(a, shapes_) < key(b, shapes_); });
  for (const LogEntry& entry : ready_) {
    if (ops_ > 0 && !(key(previous_, shapes_) < key(entry, shapes_))) ++order_errors_;
    write(entry);
    previous_ = entry;
    ++ops_;
  }
}

void OpLog::write(const LogEntry& entry) {
  LogSource& source = sources_[entry.source];
  OpShape& shape = shapes_[entry.shape];
  if (source.log_id == 0) {
    source.log_id = ++source_ids_;
    put_u8(2);
    for (std::uint64_t value : {source.log_id, source.rank, source.child, source.device, source.stream_plus_one})
      put_v(value);
  }
  if (shape.log_id == 0) define(shape);
  std::uint64_t extra[3] = {entry.extra[0], entry.extra[1], entry.extra[2]};
  if (shape.type == RecordType::kStreamWait && extra[0] != 0) {
    // The event's record comes earlier in the total order (or at the same time), so its source mostly has an id by now.
    LogSource& recorder = sources_[extra[0] - 1];
    if (recorder.log_id == 0) {
      recorder.log_id = ++source_ids_;
      put_u8(2);
      for (std::uint64_t value :
           {recorder.log_id, recorder.rank, recorder.child, recorder.device, recorder.stream_plus_one}) {
        put_v(value);
      }
    }
    extra[0] = recorder.log_id;
  }
  put_u8(5);
  put_v(source.log_id);
  put_z(static_cast<std::int64_t>(entry.sequence - source.last_sequence));
  source.last_sequence = entry.sequence;
  put_v(shape.log_id);
  put_v(entry.start - (ops_ == 0 ? 0 : std::min(previous_.start, entry.start)));
  put_v(entry.end - entry.start);
  put_z(static_cast<std::int64_t>(entry.start - entry.issue));
  if (shape.type == RecordType::kCollective) {
    for (std::uint64_t value : extra) put_v(value);
  } else if (shape.type == RecordType::kStreamWait) {
    put_v(extra[0]);
    put_v(extra[1]);
  }
  if (buffer_.size() >= (1U << 18)) flush();
}

void OpLog::define(OpShape& shape) {
  shape.log_id = ++shape_ids_;
  switch (shape.type) {
    case RecordType::kKernel: {
      wire::KernelOp op;
      std::copy_n(reinterpret_cast<const char*>(shape.words.data()), sizeof op, reinterpret_cast<char*>(&op));
      define_name(op.name);
      define_name(op.op);
      break;
    }
    case RecordType::kGemm: {
      wire::GemmOp op;
      std::copy_n(reinterpret_cast<const char*>(shape.words.data()), sizeof op, reinterpret_cast<char*>(&op));
      define_name(op.name);
      define_name(op.op);
      break;
    }
    case RecordType::kMark:
      define_name(shape.words[2]);
      break;
    case RecordType::kHostWork:
      define_name(shape.words[1]);
      break;
    case RecordType::kCollective: {
      const auto id = static_cast<std::uint32_t>(shape.words[0]);
      if (id < comms_.size() && !comms_[id].defined) {
        comms_[id].defined = true;
        put_u8(4);
        put_v(id);
        put_text(comms_[id].label);
        put_v(comms_[id].ranks.size());
        for (std::uint32_t rank : comms_[id].ranks) put_v(rank);
      }
      break;
    }
    default:
      break;
  }
  put_u8(3);
  put_v(shape.log_id);
  put_u8(static_cast<std::uint8_t>(shape.type));
  for (std::uint64_t word : shape.words) put_u64(word);
}

void OpLog::define_name(std::uint64_t hash) {
  if (hash == 0 || !named_.try_emplace(hash, true).second) return;
  put_u8(1);
  put_u64(hash);
  put_text(names_.get(hash));
}

void OpLog::finish() {
  if (finished_) return;
  finished_ = true;
  advance(kNever, true);
  put_u8(6);
  put_v(last_end_);
  flush();
}

void OpLog::flush() {
  bytes_ += buffer_.size();
  const char* at = buffer_.data();
  std::size_t left = fd_ < 0 || write_failed_ ? 0 : buffer_.size();
  while (left > 0) {
    const ssize_t done = ::write(fd_, at, left);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      write_failed_ = true;
      break;
    }
    at += done;
    left -= static_cast<std::size_t>(done);
  }
  buffer_.clear();
}

void OpLog::put_u64(std::uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) put_u8(static_cast<std::uint8_t>(value >> (8 * byte)));
}

void OpLog::put_v(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_u8(static_cast<std::uint8_t>(value | 0x80));
  put_u8(static_cast<std::uint8_t>(value));
}

void OpLog::put_z(std::int64_t value) {
  put_v((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
}

void OpLog::put_text(const std::string& text) {
  put_v(text.size());
  buffer_ += text;
}

}  // namespace phantora::core
