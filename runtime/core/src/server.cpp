#include "server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "segment.hpp"

namespace phantora::core {
namespace {

constexpr std::uint64_t kListener = 0, kPoke = 1;
constexpr std::uint64_t kProcessBit = 1ULL << 63;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

void add(int epoll, int fd, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
}

}  // namespace

char process_state(std::uint32_t pid) {
  char path[48], text[512];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return 0;
  text[got] = '\0';
  const char* end = std::strrchr(text, ')');  // the command may hold anything, even `)`
  return end != nullptr && end[1] == ' ' ? end[2] : '\0';
}

Server::Server(std::string name, std::uint64_t token, std::function<void()> wake)
    : name_(std::move(name)), token_(token), wake_(std::move(wake)) {
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name_.size() + 1 > sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    fail("bind");
  }
  std::memcpy(address.sun_path + 1, name_.data(), name_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0) fail("bind of the core's socket");
  if (listen(listener_, 1024) != 0) fail("listen");
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  poke_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_ < 0 || poke_ < 0) fail("epoll");
  add(epoll_, listener_, EPOLLIN, kListener);
  add(epoll_, poke_, EPOLLIN, kPoke);
}

Server::~Server() {
  stop_ = true;
  poke();
  if (thread_.joinable()) thread_.join();
  for (auto& [id, connection] : connections_) close(connection->fd);
  for (auto& [id, watched] : watched_) {
    if (watched.fd >= 0) close(watched.fd);
  }
  for (int fd : {listener_, epoll_, poke_}) {
    if (fd >= 0) close(fd);
  }
}

void Server::start() {
  thread_ = std::thread([this] { run(); });
}

void Server::poke() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t done = write(poke_, &one, sizeof one);
}

void Server::push(Incoming incoming) {
  {
    const std::lock_guard lock(incoming_mutex_);
    incoming_.push_back(std::move(incoming));
    incoming_count_.store(incoming_.size(), std::memory_order_release);
  }
  wake_();
}

std::vector<Incoming> Server::take() {
  if (!has_incoming()) return {};
  const std::lock_guard lock(incoming_mutex_);
  incoming_count_.store(0, std::memory_order_release);
  return std::exchange(incoming_, {});
}

std::shared_ptr<Server::Connection> Server::find(std::uint64_t id) {
  const std::lock_guard lock(connections_mutex_);
  const auto at = connections_.find(id);
  return at == connections_.end() ? nullptr : at->second;
}

void Server::run() {
  epoll_event events[64];
  std::uint64_t last_look = 0;
  while (!stop_) {
    bool process_event = false;
    const int count = epoll_wait(epoll_, events, 64, 50);
    for (int index = 0; index < count; ++index) {
      const std::uint64_t id = events[index].data.u64;
      if (id == kListener) {
        accept_all();
      } else if (id == kPoke) {
        std::uint64_t value;
        [[maybe_unused]] const ssize_t got = read(poke_, &value, sizeof value);
        std::vector<std::uint64_t> dropped;
        {
          const std::lock_guard lock(connections_mutex_);
          dropped.swap(to_drop_);
        }
        for (std::uint64_t drop_id : dropped) close_connection(drop_id);
      } else if ((id & kProcessBit) != 0) {
        process_event = true;
      } else {
        if (const auto connection = find(id)) {
          if ((events[index].events & EPOLLOUT) != 0) write_to(id, *connection);
          if ((events[index].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(id, *connection);
        }
      }
    }
    // A look costs a system call a rank: not after every message.
    const std::uint64_t now = real_now_ns();
    if (process_event || now - last_look > 20'000'000) {
      look_at_processes();
      last_look = now;
    }
  }
}

void Server::accept_all() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) {
      close(fd);  // another user: not even an answer
      continue;
    }
    std::uint64_t id = 0;
    {
      const std::lock_guard lock(connections_mutex_);
      id = next_id_++;
      connections_.emplace(id, std::make_shared<Connection>(fd, token_));
    }
    add(epoll_, fd, EPOLLIN, id);
  }
}

void Server::read_from(std::uint64_t id, Connection& connection) {
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = recv(connection.fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      Incoming closed;
      closed.what = Incoming::What::kClosed;
      closed.connection = id;
      close_connection(id);
      push(std::move(closed));
      return;
    }
    connection.parser.feed(buffer, static_cast<std::size_t>(got));
    Incoming incoming;
    incoming.connection = id;
    auto outcome = FrameParser::Outcome::kNeedMore;
    while ((outcome = connection.parser.next(incoming.frame)) == FrameParser::Outcome::kFrame) {
      incoming.pid = connection.parser.pid();
      incoming.actor = incoming.frame.header.actor;
      push(std::exchange(incoming, {}));
      incoming.connection = id;
    }
    if (outcome == FrameParser::Outcome::kMalformed) {
      incoming.what = Incoming::What::kMalformed;
      incoming.actor = connection.parser.last_actor();
      incoming.pid = connection.parser.welcomed() ? connection.parser.pid() : 0;
      incoming.error = connection.parser.error();
      close_connection(id);
      push(std::move(incoming));
      return;
    }
  }
}

void Server::write_to(std::uint64_t id, Connection& connection) {
  const std::lock_guard lock(connection.mutex);
  if (connection.closed) return;
  while (!connection.unsent.empty()) {
    const ssize_t done =
        send(connection.fd, connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) break;  // full: epoll says when to go on; broken: the read side notices
    connection.unsent.erase(0, static_cast<std::size_t>(done));
  }
  const bool wants = !connection.unsent.empty();
  if (wants != connection.wants_write) {
    connection.wants_write = wants;
    epoll_event event{};
    event.events = wants ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u64 = id;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
  }
}

void Server::reply(std::uint64_t id, const wire::ReplyHeader& header, const Bytes& body) {
  const auto connection = find(id);
  if (connection == nullptr) return;
  {
    const std::lock_guard lock(connection->mutex);
    connection->unsent.append(reinterpret_cast<const char*>(&header), sizeof header);
    connection->unsent.append(body);
  }
  write_to(id, *connection);
}

void Server::drop(std::uint64_t id) {
  {
    const std::lock_guard lock(connections_mutex_);
    to_drop_.push_back(id);
  }
  poke();
}

void Server::close_connection(std::uint64_t id) {
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(connections_mutex_);
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;
    connection = at->second;
    connections_.erase(at);
  }
  const std::lock_guard lock(connection->mutex);
  connection->closed = true;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, connection->fd, nullptr);
  close(connection->fd);
}

void Server::watch(std::uint32_t actor, std::uint32_t pid) {
  Watched watched{actor, pid, -1};
#ifdef SYS_pidfd_open
  watched.fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // refused by old kernels and seccomp profiles
#endif
  const std::lock_guard lock(watch_mutex_);
  const std::uint64_t id = kProcessBit | static_cast<std::uint64_t>(actor) << 32 | pid;
  if (!watched_.try_emplace(id, watched).second) {
    if (watched.fd >= 0) close(watched.fd);
    return;
  }
  if (watched.fd >= 0) add(epoll_, watched.fd, EPOLLIN, id);  // only ends the epoll_wait; the look decides
}

void Server::look_at_processes() {
  std::vector<Watched> ended;
  {
    const std::lock_guard lock(watch_mutex_);
    for (auto at = watched_.begin(); at != watched_.end();) {
      const Watched& watched = at->second;
      bool gone = false;
      if (watched.fd >= 0) {
        pollfd poll_one{watched.fd, POLLIN, 0};
        gone = poll(&poll_one, 1, 0) > 0;  // a pidfd becomes readable when the process has ended
      } else {
        const char state = process_state(watched.pid);
        gone = state == '\0' || state == 'Z' || state == 'X';
      }
      if (!gone) {
        ++at;
        continue;
      }
      if (watched.fd >= 0) {
        epoll_ctl(epoll_, EPOLL_CTL_DEL, watched.fd, nullptr);
        close(watched.fd);
      }
      ended.push_back(watched);
      at = watched_.erase(at);
    }
  }
  for (const Watched& watched : ended) {
    Incoming incoming;
    incoming.what = Incoming::What::kProcessEnded;
    incoming.actor = watched.actor;
    incoming.pid = watched.pid;
    push(std::move(incoming));
  }
}

}  // namespace phantora::core
