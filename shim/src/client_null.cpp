// PHANTORA_NULL=1: no run, but the GPU's properties. The launcher writes them from the profile (PHANTORA_GPU_CONF);
// without it, in tests of the shim alone, they are those of an H100 SXM 80GB.
#include <fcntl.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "client_state.hpp"
#include "raw_syscall.hpp"

namespace phantora::client {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

struct Field {
  const char* name;
  std::uint64_t wire::GpuProperties::* member;
  std::uint64_t h100;
};

// NVIDIA H100 SXM5 80 GB; memory sizes as in profiles/gpus/h100-sxm-80gb.
constexpr Field kFields[] = {
    {"total_bytes", &wire::GpuProperties::total_bytes, 80'998 * kMiB},
    {"context_bytes", &wire::GpuProperties::context_bytes, 551 * kMiB},
    {"compute_major", &wire::GpuProperties::compute_major, 9},
    {"compute_minor", &wire::GpuProperties::compute_minor, 0},
    {"sm_count", &wire::GpuProperties::sm_count, 132},
    {"clock_khz", &wire::GpuProperties::clock_khz, 1'980'000},
    {"memory_clock_khz", &wire::GpuProperties::memory_clock_khz, 2'619'000},
    {"memory_bus_bits", &wire::GpuProperties::memory_bus_bits, 5'120},
    {"l2_bytes", &wire::GpuProperties::l2_bytes, 50 * kMiB},
    {"shared_per_block", &wire::GpuProperties::shared_per_block, 49'152},
    {"shared_per_block_optin", &wire::GpuProperties::shared_per_block_optin, 232'448},
    {"shared_per_sm", &wire::GpuProperties::shared_per_sm, 233'472},
    {"reserved_shared_per_block", &wire::GpuProperties::reserved_shared_per_block, 1'024},
    {"registers_per_block", &wire::GpuProperties::registers_per_block, 65'536},
    {"registers_per_sm", &wire::GpuProperties::registers_per_sm, 65'536},
    {"max_threads_per_sm", &wire::GpuProperties::max_threads_per_sm, 2'048},
    {"max_blocks_per_sm", &wire::GpuProperties::max_blocks_per_sm, 32},
    {"pcie_domain", &wire::GpuProperties::pcie_domain, 0},
    {"power_limit_mw", &wire::GpuProperties::power_limit_mw, 700'000},
    {"driver_version", &wire::GpuProperties::driver_version, 13'050},
    {"nvlink_count", &wire::GpuProperties::nvlink_count, 18},
    {"copy_engines", &wire::GpuProperties::copy_engines, 3},
    {"nccl_comm_bytes", &wire::GpuProperties::nccl_comm_bytes, 0},
};

wire::RunHeader g_null_header;

std::string read_file(const char* path) {
  std::string text;
  const long fd = raw_syscall(SYS_open, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  for (long got = 0; (got = raw_syscall(SYS_read, fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  raw_syscall(SYS_close, fd);
  return text;
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

void set_value(std::string_view name, const std::string& value) {
  const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 0);
  auto& header = g_null_header;
  if (name == "world_size") header.world_size = static_cast<std::uint32_t>(number);
  if (name == "gpus_per_node") header.gpus_per_node = static_cast<std::uint32_t>(number);
  if (name == "cpu_count") header.cpu_count = static_cast<std::uint32_t>(number);
  if (name == "seed") header.seed = number;
  if (name == "epoch_ns") header.epoch_ns = static_cast<std::int64_t>(number);
  if (!name.starts_with("gpu.")) return;
  name.remove_prefix(4);
  if (name == "name") std::strncpy(header.gpu.name, value.c_str(), sizeof header.gpu.name - 1);
  if (name == "uuid_prefix") std::strncpy(header.gpu.uuid_prefix, value.c_str(), sizeof header.gpu.uuid_prefix - 1);
  for (const Field& field : kFields) {
    if (name == field.name) header.gpu.*field.member = number;
  }
}

void read_conf(const std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = rest.find('\n');
    const std::string_view line = trim(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    const auto equals = line.find('=');
    if (line.empty() || line[0] == '#' || equals == std::string_view::npos) continue;
    set_value(trim(line.substr(0, equals)), std::string(trim(line.substr(equals + 1))));
  }
}

std::uint32_t number_from(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

void fill_null_header() {
  static constinit SpinLock filling;
  SpinGuard guard(filling);
  if (g_state.header != nullptr) return;
  auto& header = g_null_header;
  header.magic = wire::kMagic;
  header.version = wire::kVersion;
  header.header_bytes = sizeof header;
  header.world_size = number_from("WORLD_SIZE", 1);
  header.gpus_per_node = number_from("LOCAL_WORLD_SIZE", 8);
  header.cpu_count = 1;
  std::strcpy(header.gpu.name, "NVIDIA H100 80GB HBM3");
  std::strcpy(header.gpu.uuid_prefix, "GPU-50480100");
  for (const Field& field : kFields) header.gpu.*field.member = field.h100;
  if (const char* path = std::getenv("PHANTORA_GPU_CONF")) read_conf(read_file(path));
  if (g_state.rank < 0) g_state.rank = static_cast<int>(number_from("RANK", 0));
  g_state.header = &header;
}

}  // namespace phantora::client
