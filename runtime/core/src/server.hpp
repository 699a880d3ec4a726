// The core's socket: a thread that accepts connections of the same user, cuts what they send into frames and hands
// these to the engine; and that watches the ranks' processes. The engine answers from its own thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "frame.hpp"

namespace phantora::core {

struct Incoming {
  enum class What { kFrame, kClosed, kMalformed, kProcessEnded } what = What::kFrame;
  std::uint64_t connection = 0;
  std::uint32_t actor = ~0U;  // kMalformed, kProcessEnded: whose, if known
  std::uint32_t pid = 0;
  FrameParser::Frame frame;
  std::string error;
};

class Server {
 public:
  // `wake` is called (from the server's thread) when something came in.
  Server(std::string name, std::uint64_t token, std::function<void()> wake);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void start();
  std::vector<Incoming> take();
  bool has_incoming() const { return incoming_count_.load(std::memory_order_acquire) != 0; }
  void reply(std::uint64_t connection, const wire::ReplyHeader& header, const Bytes& body);
  void drop(std::uint64_t connection);
  // Reports kProcessEnded once that process has ended (or when it cannot be found).
  void watch(std::uint32_t actor, std::uint32_t pid);

 private:
  struct Connection {
    explicit Connection(int socket, std::uint64_t token) : fd(socket), parser(token) {}
    int fd;
    FrameParser parser;  // server thread only
    std::mutex mutex;    // guards the rest
    Bytes unsent;
    bool closed = false, wants_write = false;
  };
  struct Watched {
    std::uint32_t actor, pid;
    int fd;  // pidfd, or -1: look at /proc
  };
  void run();
  void accept_all();
  void read_from(std::uint64_t id, Connection& connection);
  void write_to(std::uint64_t id, Connection& connection);
  void close_connection(std::uint64_t id);
  void look_at_processes();
  void push(Incoming incoming);
  std::shared_ptr<Connection> find(std::uint64_t id);
  void poke();

  std::string name_;
  std::uint64_t token_;
  std::function<void()> wake_;
  int listener_ = -1, epoll_ = -1, poke_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;

  std::mutex connections_mutex_;
  std::map<std::uint64_t, std::shared_ptr<Connection>> connections_;
  std::vector<std::uint64_t> to_drop_;
  std::uint64_t next_id_ = 16;

  std::mutex watch_mutex_;
  std::map<std::uint64_t, Watched> watched_;

  std::mutex incoming_mutex_;
  std::vector<Incoming> incoming_;
  std::atomic<std::size_t> incoming_count_{0};
};

// State letter of /proc/<pid>/stat; 0 when there is no such process.
char process_state(std::uint32_t pid);

}  // namespace phantora::core
