// events.jsonl: one JSON object a line while the run goes on; what the live view reads and replays.
#pragma once

#include <cstdio>
#include <string>

#include "json.hpp"
#include "time.hpp"

namespace phantora::core {

class EventStream {
 public:
  explicit EventStream(const std::string& path) : file_(path.empty() ? nullptr : std::fopen(path.c_str(), "ae")) {}
  ~EventStream() {
    if (file_ != nullptr) std::fclose(file_);
  }
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;
  // `type` and `at_ns` come first in every line.
  static Json line(const char* type, Instant at) {
    return std::move(Json::object().set("type", type).set("at_ns", at));
  }
  void write(const Json& event) {
    if (file_ == nullptr) return;
    const std::string text = event.text() + "\n";
    std::fwrite(text.data(), 1, text.size(), file_);
  }
  void flush() {
    if (file_ != nullptr) std::fflush(file_);
  }

 private:
  std::FILE* file_;
};

}  // namespace phantora::core
