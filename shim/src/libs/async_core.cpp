#include "libs/async_core.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <new>

#include "client_state.hpp"
#include "message.hpp"
#include "raw_syscall.hpp"

namespace phantora::async_core {
namespace {

using wire::MessageHeader;
using wire::MessageType;
using wire::ReplyHeader;
using wire::Status;

// Connections that are kept open when idle; more are closed after use.
constexpr std::size_t kKeptIdle = 16;

struct Flight {
  int fd;
  Done done;
  void* context;
  std::vector<std::byte> received;  // reply header and body so far
};

struct Engine {
  std::mutex lock;
  std::vector<Flight*> started;  // not yet taken over by the receiving thread
  std::vector<int> idle;
  int wake_fd = -1;
  bool running = false;
  std::uint32_t sequence = 0;
};

Engine& engine() {
  static Engine& instance = []() -> Engine& {
    static unsigned char storage[sizeof(Engine)] __attribute__((aligned(alignof(Engine))));
    auto* made = new (storage) Engine;
    // The child has neither the thread nor a right to the connections; what is in flight is the parent's.
    pthread_atfork(nullptr, nullptr, [] { new (storage) Engine; });
    return *made;
  }();
  return instance;
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const long sent = raw_syscall(SYS_sendto, fd, at, bytes, MSG_NOSIGNAL, nullptr, 0);
    if (sent == -EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool send_frame(int fd, MessageType type, std::span<const std::byte> body, std::uint32_t sequence) {
  MessageHeader header{};
  header.bytes = static_cast<std::uint32_t>(body.size());
  header.type = type;
  header.driving = 0;
  header.actor = client::g_state.actor;
  header.sequence = sequence;
  header.h_ns = client::now_ns();
  return send_all(fd, &header, sizeof header) && send_all(fd, body.data(), body.size());
}

bool receive_exactly(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const long got = raw_syscall(SYS_recvfrom, fd, at, bytes, 0, nullptr, nullptr);
    if (got == -EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

int connect_core() {
  const wire::RunHeader* run = client::header();
  if (run == nullptr) return -1;
  const long fd = raw_syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = strnlen(run->rpc_name, sizeof run->rpc_name);
  std::memcpy(address.sun_path + 1, run->rpc_name, length);
  const auto size = static_cast<long>(offsetof(sockaddr_un, sun_path) + 1 + length);
  client::Body hello;
  hello.u64(run->rpc_token)
      .u32(static_cast<std::uint32_t>(client::g_state.pid))
      .u32(static_cast<std::uint32_t>(client::real_tid()));
  ReplyHeader reply{};
  const bool connected = raw_syscall(SYS_connect, fd, &address, size) == 0 &&
                         send_frame(static_cast<int>(fd), MessageType::kHello, hello.span(), 0) &&
                         receive_exactly(static_cast<int>(fd), &reply, sizeof reply) && reply.status == Status::kOk &&
                         reply.bytes == 0;
  if (connected) return static_cast<int>(fd);
  raw_syscall(SYS_close, fd);
  return -1;
}

void finish(Flight* flight, Status status, std::vector<std::byte>&& body) {
  flight->done(flight->context, status, std::move(body));
  delete flight;
}

// Reads what has come. True when the flight is over.
bool receive(Flight* flight, Engine& all) {
  std::byte block[65536];
  const long got = raw_syscall(SYS_recvfrom, flight->fd, block, sizeof block, MSG_DONTWAIT, nullptr, nullptr);
  if (got == -EAGAIN || got == -EINTR) return false;
  bool failed = got <= 0;
  if (!failed) flight->received.insert(flight->received.end(), block, block + got);
  ReplyHeader header{};
  if (flight->received.size() >= sizeof header) {
    std::memcpy(&header, flight->received.data(), sizeof header);
    failed = failed || header.bytes > wire::kMaxMessageBytes;
    if (!failed && flight->received.size() < sizeof header + header.bytes) return false;
  } else if (!failed) {
    return false;
  }
  if (failed) {
    raw_syscall(SYS_close, flight->fd);
    finish(flight, Status::kEnding, {});
    return true;
  }
  {
    std::lock_guard hold(all.lock);
    if (all.idle.size() < kKeptIdle) {
      all.idle.push_back(flight->fd);
    } else {
      raw_syscall(SYS_close, flight->fd);
    }
  }
  flight->received.erase(flight->received.begin(), flight->received.begin() + sizeof header);
  std::vector<std::byte> body = std::move(flight->received);
  finish(flight, header.status, std::move(body));
  return true;
}

void* receive_replies(void*) {
  Engine& all = engine();
  std::vector<Flight*> flights;
  std::vector<pollfd> polled;
  for (;;) {
    {
      std::lock_guard hold(all.lock);
      flights.insert(flights.end(), all.started.begin(), all.started.end());
      all.started.clear();
    }
    polled.assign(1, {all.wake_fd, POLLIN, 0});
    for (const Flight* flight : flights) polled.push_back({flight->fd, POLLIN, 0});
    raw_syscall(SYS_poll, polled.data(), polled.size(), -1);
    std::uint64_t count = 0;
    if (polled[0].revents != 0) raw_syscall(SYS_read, all.wake_fd, &count, sizeof count);
    std::vector<Flight*> left;
    for (std::size_t i = 0; i < flights.size(); ++i)
      if (polled[i + 1].revents == 0 || !receive(flights[i], all)) left.push_back(flights[i]);
    flights.swap(left);
  }
}

// With the lock held.
bool start_thread(Engine& all) {
  if (all.running) return true;
  all.wake_fd = static_cast<int>(raw_syscall(SYS_eventfd2, 0, EFD_CLOEXEC));
  if (all.wake_fd < 0) return false;
  sigset_t every, before;  // signals belong to the script's threads
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  pthread_t thread;
  all.running = pthread_create(&thread, nullptr, receive_replies, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (all.running) pthread_detach(thread);
  return all.running;
}

}  // namespace

void start(MessageType type, std::span<const std::byte> body, Done done, void* context) {
  Engine& all = engine();
  int fd = -1;
  std::uint32_t sequence = 0;
  bool running = false;
  {
    std::lock_guard hold(all.lock);
    running = start_thread(all);
    sequence = ++all.sequence;
    if (!all.idle.empty()) {
      fd = all.idle.back();
      all.idle.pop_back();
    }
  }
  if (fd < 0) fd = connect_core();
  auto* flight = new Flight{fd, done, context, {}};
  if (!running || fd < 0 || !send_frame(fd, type, body, sequence)) {
    if (fd >= 0) raw_syscall(SYS_close, fd);
    return finish(flight, Status::kEnding, {});
  }
  {
    std::lock_guard hold(all.lock);
    all.started.push_back(flight);
  }
  const std::uint64_t one = 1;
  raw_syscall(SYS_write, all.wake_fd, &one, sizeof one);
}

}  // namespace phantora::async_core
