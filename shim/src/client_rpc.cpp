// Requests on the core's socket, and the names and notes that travel by it. One connection for each thread that needs
// one.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client_state.hpp"
#include "message.hpp"
#include "raw_syscall.hpp"

namespace phantora::client {
namespace {

constexpr int kHighDescriptor = 700;  // out of the way of descriptors that scripts count or close by number
constexpr std::uint32_t kConnections = 512;
constexpr std::uint32_t kKnownTexts = 4096;

std::atomic<int> g_connections[kConnections];           // descriptor + 1; a forked child closes them all
std::atomic<std::uint64_t> g_known_names[kKnownTexts];  // names that found no place in the shared table
std::atomic<std::uint64_t> g_known_notes[kKnownTexts];

// Adds; false if it was there. A full set forgets: the message is then sent again, which does no harm.
bool remember(std::atomic<std::uint64_t>* set, std::uint64_t hash) {
  for (std::uint32_t probe = 0; probe < 16; ++probe) {
    auto& slot = set[(hash + probe) % kKnownTexts];
    std::uint64_t held = slot.load(std::memory_order_relaxed);
    if (held == hash) return false;
    if (held == 0 && slot.compare_exchange_strong(held, hash)) return true;
    if (held == hash) return false;
  }
  return true;
}

bool known_to_core(std::uint64_t hash) {
  const auto* names = reinterpret_cast<const std::atomic<std::uint64_t>*>(
      reinterpret_cast<const char*>(g_state.header) + g_state.header->name_offset);
  for (std::uint32_t probe = 0; probe < 8; ++probe) {
    const std::uint64_t held = names[(hash + probe) % wire::kNameSlots].load(std::memory_order_acquire);
    if (held == hash) return true;
    if (held == 0) break;
  }
  for (std::uint32_t probe = 0; probe < 16; ++probe) {
    const std::uint64_t held = g_known_names[(hash + probe) % kKnownTexts].load(std::memory_order_relaxed);
    if (held == hash) return true;
    if (held == 0) return false;
  }
  return false;
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const long sent = raw_syscall(SYS_sendto, fd, next, bytes, MSG_NOSIGNAL, nullptr, 0);
    if (sent == -EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, std::size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const long got = raw_syscall(SYS_recvfrom, fd, next, bytes, 0, nullptr, nullptr);
    if (got == -EINTR) continue;
    if (got <= 0) return false;
    next += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool exchange(int fd, wire::MessageHeader message, std::span<const std::byte> body, wire::ReplyHeader& answer,
              std::vector<std::byte>& reply) {
  message.bytes = static_cast<std::uint32_t>(body.size());
  message.sequence = ++t_thread.messages;
  if (!send_all(fd, &message, sizeof message) || !send_all(fd, body.data(), body.size())) return false;
  if (!receive_all(fd, &answer, sizeof answer)) return false;
  if (answer.sequence != message.sequence || answer.bytes > wire::kMaxMessageBytes) return false;
  reply.resize(answer.bytes);
  return receive_all(fd, reply.data(), reply.size());
}

wire::MessageHeader make_header(wire::MessageType type) {
  wire::MessageHeader message = {};
  message.type = type;
  message.driving = is_driver() && type != wire::MessageType::kHello ? 1 : 0;
  message.actor = g_state.actor;
  message.h_ns = stamp_ns();
  return message;
}

void drop_connection() {
  const int fd = t_thread.connection - 1;
  t_thread.connection = 0;
  if (fd < 0) return;
  for (auto& slot : g_connections) {
    int held = fd + 1;
    if (slot.compare_exchange_strong(held, 0)) break;
  }
  raw_syscall(SYS_close, fd);
}

bool connect_thread() {
  if (t_thread.connection != 0) return true;
  const auto* header = g_state.header;
  int fd = static_cast<int>(raw_syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return false;
  const long moved = raw_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (moved >= 0) {
    raw_syscall(SYS_close, fd);
    fd = static_cast<int>(moved);
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = strnlen(header->rpc_name, sizeof header->rpc_name);
  std::memcpy(address.sun_path + 1, header->rpc_name, std::min(length, sizeof address.sun_path - 1));
  const auto bytes = offsetof(sockaddr_un, sun_path) + 1 + std::min(length, sizeof address.sun_path - 1);
  long result = -EINTR;
  while (result == -EINTR) result = raw_syscall(SYS_connect, fd, &address, bytes);
  if (result < 0) {
    raw_syscall(SYS_close, fd);
    return false;
  }
  Body hello;
  hello.u64(header->rpc_token).u32(static_cast<std::uint32_t>(g_state.pid)).u32(static_cast<std::uint32_t>(real_tid()));
  wire::ReplyHeader answer = {};
  std::vector<std::byte> nothing;
  if (!exchange(fd, make_header(wire::MessageType::kHello), hello.span(), answer, nothing) ||
      answer.status != wire::Status::kOk) {
    raw_syscall(SYS_close, fd);
    return false;
  }
  t_thread.connection = fd + 1;
  for (auto& slot : g_connections) {
    int free = 0;
    if (slot.compare_exchange_strong(free, fd + 1)) break;
  }
  return true;
}

// As request(), in the order of the ring only where `ordered`.
wire::Status send_request(wire::MessageType type, std::span<const std::byte> body, std::vector<std::byte>& reply,
                          bool ordered) {
  reply.clear();
  if (!is_virtual() || body.size() > wire::kMaxMessageBytes) return wire::Status::kRefused;
  if (is_actor() && g_state.exited.load(std::memory_order_relaxed)) return wire::Status::kRefused;
  const int error = errno;
  t_thread.reads = 0;
  wire::ReplyHeader answer = {};
  bool answered = false;
  // Twice: a script that closed all descriptors closed this one too.
  for (int attempt = 0; attempt < 2 && !answered; ++attempt) {
    if (!connect_thread()) continue;
    // Only what waits publishes: which rank has to tell a name first differs from run to run, and op scopes must not be
    // cut by it.
    // A helper thread's request has no place in the order of records either.
    if (ordered && t_thread.driving) flush_records();
    auto message = make_header(type);
    if (!ordered) message.driving = 0;
    answered = exchange(t_thread.connection - 1, message, body, answer, reply);
    if (!answered) drop_connection();
  }
  errno = error;
  if (!answered) {
    check_ending();
    if (!is_actor()) return wire::Status::kRefused;
    complain("the simulator core does not answer any more; this rank ends");
    end_process(kEndingStatus);
  }
  if (answer.status == wire::Status::kEnding) end_process(kEndingStatus);
  if (ordered) join(answer.resume_ns);
  return answer.status;
}

}  // namespace

wire::Status request(wire::MessageType type, std::span<const std::byte> body, std::vector<std::byte>& reply) {
  return send_request(type, body, reply, true);
}

void note(std::string_view kind, std::string_view text) {
  if (!is_virtual()) return;
  const std::uint64_t hash = wire::name_hash(std::string(kind).append(1, ':').append(text).c_str());
  if (!remember(g_known_notes, hash)) return;
  Body body;
  body.string(kind).string(text);
  std::vector<std::byte> reply;
  send_request(wire::MessageType::kNote, body.span(), reply, false);
}

std::uint64_t intern(const char* name) {
  const std::uint64_t hash = wire::name_hash(name);
  if (!is_virtual() || known_to_core(hash)) return hash;
  Body body;
  body.u64(hash).string(name);
  std::vector<std::byte> reply;
  if (send_request(wire::MessageType::kName, body.span(), reply, false) == wire::Status::kOk)
    remember(g_known_names, hash);
  return hash;
}

void close_connections() {
  for (auto& slot : g_connections) {
    const int fd = slot.exchange(0) - 1;
    if (fd >= 0) raw_syscall(SYS_close, fd);
  }
  t_thread.connection = 0;
}

void unregister_thread() {
  if (t_thread.pending != 0) stop_holding(false);
  drop_connection();
  if (t_thread.wake_fd != 0) raw_syscall(SYS_close, t_thread.wake_fd - 1);
  t_thread.wake_fd = 0;
  if (t_thread.driving && is_actor()) g_state.drivers.fetch_sub(1);
  t_thread.driving = false;
}

}  // namespace phantora::client
