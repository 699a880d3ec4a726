// Calls that may block on another process: while a driving thread is inside, the core may park the rank (rule 10).
#include "client_state.hpp"
#include "libc/real.hpp"
#include "libc/timer.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

// Beats of every wrapper here: outside a run the real call; in one, the real call with the core told.
template <typename Call>
auto call_outside(Call call) {
  if (!client::is_actor()) return call();
  libc::Outside outside;
  return call();
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* data, size_t bytes) {
  return call_outside([=] { return libc::real::read(fd, data, bytes); });
}
ssize_t __read_chk(int fd, void* data, size_t bytes, size_t) { return read(fd, data, bytes); }
ssize_t readv(int fd, const iovec* parts, int count) {
  return call_outside([=] { return libc::real::readv(fd, parts, count); });
}
ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  return call_outside([=] { return libc::real::recv(fd, data, bytes, flags); });
}
ssize_t __recv_chk(int fd, void* data, size_t bytes, size_t, int flags) { return recv(fd, data, bytes, flags); }
ssize_t recvfrom(int fd, void* __restrict data, size_t bytes, int flags, sockaddr* __restrict from,
                 socklen_t* __restrict length) {
  return call_outside([=] { return libc::real::recvfrom(fd, data, bytes, flags, from, length); });
}
ssize_t __recvfrom_chk(int fd, void* __restrict data, size_t bytes, size_t, int flags, sockaddr* __restrict from,
                       socklen_t* __restrict length) {
  return recvfrom(fd, data, bytes, flags, from, length);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return call_outside([=] { return libc::real::recvmsg(fd, message, flags); });
}
int accept(int fd, sockaddr* __restrict address, socklen_t* __restrict length) {
  return call_outside([=] { return libc::real::accept(fd, address, length); });
}
int accept4(int fd, sockaddr* __restrict address, socklen_t* __restrict length, int flags) {
  return call_outside([=] { return libc::real::accept4(fd, address, length, flags); });
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  return call_outside([=] { return libc::real::connect(fd, address, length); });
}

}  // extern "C"
