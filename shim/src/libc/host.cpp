// The machine a rank sees: node-<k> of the simulated cluster, with the CPUs of the profile, and names that resolve
// offline.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client_state.hpp"
#include "libc/real.hpp"

namespace client = phantora::client;
namespace libc = phantora::libc;

namespace {

constexpr std::size_t kNameBytes = 32;

void node_name(char (&name)[kNameBytes]) {
  const auto& state = client::g_state;
  const auto per_node = static_cast<int>(std::max(1U, state.header->gpus_per_node));
  std::snprintf(name, sizeof name, "node-%d", std::max(state.rank, 0) / per_node);
}

long cpu_count() { return std::max(1L, static_cast<long>(client::g_state.header->cpu_count)); }

// Names of the virtual cluster; all of its nodes are this machine.
bool is_cluster_name(const char* name) {
  if (name == nullptr || !client::is_virtual()) return false;
  if (std::strncmp(name, "node-", 5) == 0) {
    char* end = nullptr;
    const unsigned long node = std::strtoul(name + 5, &end, 10);
    const auto per_node = std::max(1U, client::g_state.header->gpus_per_node);
    return end != name + 5 && *end == '\0' && node < (client::g_state.header->world_size + per_node - 1) / per_node;
  }
  if (std::strcmp(name, "localhost") == 0) return true;
  const char* master = std::getenv("MASTER_ADDR");
  return master != nullptr && std::strcmp(name, master) == 0 && std::strspn(name, "0123456789.:") != std::strlen(name);
}

const char* loopback(int family) { return family == AF_INET6 ? "::1" : "127.0.0.1"; }

// Bits 0 .. count-1, as many as fit.
void fill_affinity(std::size_t bytes, cpu_set_t* set) {
  std::memset(set, 0, bytes);
  const std::size_t count = std::min(static_cast<std::size_t>(cpu_count()), bytes * 8);
  for (std::size_t cpu = 0; cpu < count; ++cpu) CPU_SET_S(cpu, bytes, set);
}

}  // namespace

extern "C" {

int gethostname(char* name, size_t bytes) noexcept {
  if (!client::is_virtual()) return libc::real::gethostname(name, bytes);
  char node[kNameBytes];
  node_name(node);
  if (std::strlen(node) >= bytes) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::strcpy(name, node);
  return 0;
}

int uname(utsname* system) noexcept {
  const int result = libc::real::uname(system);
  if (result != 0 || !client::is_virtual()) return result;
  char node[kNameBytes];
  node_name(node);
  std::snprintf(system->nodename, sizeof system->nodename, "%s", node);
  return 0;
}

long sysconf(int name) noexcept {
  if (client::is_virtual() && (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)) return cpu_count();
  return libc::real::sysconf(name);
}

int get_nprocs(void) noexcept {
  return client::is_virtual() ? static_cast<int>(cpu_count()) : libc::real::get_nprocs();
}
int get_nprocs_conf(void) noexcept {
  return client::is_virtual() ? static_cast<int>(cpu_count()) : libc::real::get_nprocs_conf();
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* set) noexcept {
  if (!client::is_virtual()) return libc::real::sched_getaffinity(pid, bytes, set);
  if (bytes * 8 < static_cast<std::size_t>(cpu_count())) {
    errno = EINVAL;  // how the kernel says that the mask is too small
    return -1;
  }
  fill_affinity(bytes, set);
  return 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t* set) noexcept {
  if (!client::is_virtual()) return libc::real::pthread_getaffinity_np(thread, bytes, set);
  if (bytes * 8 < static_cast<std::size_t>(cpu_count())) return EINVAL;
  fill_affinity(bytes, set);
  return 0;
}

// CPUs of the target host are not those of this machine: pinning to them is accepted and has no effect here.
int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t* set) noexcept {
  return client::is_virtual() ? 0 : libc::real::sched_setaffinity(pid, bytes, set);
}

int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t* set) noexcept {
  return client::is_virtual() ? 0 : libc::real::pthread_setaffinity_np(thread, bytes, set);
}

int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** result) {
  if (!is_cluster_name(name)) return libc::real::getaddrinfo(name, service, hints, result);
  addrinfo numeric = {};
  if (hints != nullptr) {
    numeric.ai_flags = hints->ai_flags & ~(AI_CANONNAME | AI_V4MAPPED | AI_ALL | AI_ADDRCONFIG);
    numeric.ai_family = hints->ai_family;
    numeric.ai_socktype = hints->ai_socktype;
    numeric.ai_protocol = hints->ai_protocol;
  }
  numeric.ai_flags |= AI_NUMERICHOST;
  const int error = libc::real::getaddrinfo(loopback(numeric.ai_family), service, &numeric, result);
  // freeaddrinfo frees the canonical name of the first entry, so it must come from malloc.
  if (error == 0 && hints != nullptr && (hints->ai_flags & AI_CANONNAME) != 0) (*result)->ai_canonname = strdup(name);
  return error;
}

hostent* gethostbyname(const char* name) {
  return libc::real::gethostbyname(is_cluster_name(name) ? loopback(AF_INET) : name);
}

hostent* gethostbyname2(const char* name, int family) {
  return libc::real::gethostbyname2(is_cluster_name(name) ? loopback(family) : name, family);
}

int gethostbyname_r(const char* __restrict name, hostent* __restrict entry, char* __restrict buffer, size_t bytes,
                    hostent** __restrict result, int* __restrict error) {
  return libc::real::gethostbyname_r(is_cluster_name(name) ? loopback(AF_INET) : name, entry, buffer, bytes, result,
                                     error);
}

}  // extern "C"
