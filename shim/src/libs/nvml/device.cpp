#include "libs/nvml/device.hpp"

#include <cstdio>
#include <cstring>
#include <string>

#include "cuda/state.hpp"

namespace phantora::libs::nvml {
namespace {

char g_handles[cuda::kMaxDevices];  // only the addresses are used

}  // namespace

bool usable() { return client::header() != nullptr; }
int device_count() { return usable() ? client::node_devices() : 0; }
void* handle_of(int device) { return &g_handles[device]; }

int device_of(const void* handle) {
  const auto* at = static_cast<const char*>(handle);
  if (at < g_handles || at >= g_handles + device_count()) return -1;
  return static_cast<int>(at - g_handles);
}

const wire::GpuProperties& gpu() { return client::header()->gpu; }

void bus_id(char* text, std::size_t size, int device, bool short_domain) {
  std::snprintf(text, size, short_domain ? "%04x:%02x:00.0" : "%08x:%02x:00.0",
                static_cast<unsigned>(gpu().pcie_domain), static_cast<unsigned>(cuda::pci_bus(device)));
}

int device_by_bus(const char* text) {
  unsigned domain = 0, bus = 0, slot = 0;
  if (text == nullptr) return -1;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = static_cast<unsigned>(gpu().pcie_domain);
    if (std::sscanf(text, "%x:%x", &bus, &slot) != 2) return -1;
  }
  for (int device = 0; device < device_count(); ++device)
    if (domain == gpu().pcie_domain && bus == static_cast<unsigned>(cuda::pci_bus(device))) return device;
  return -1;
}

// The same 16 bytes that cudaDeviceProp carries.
void uuid(char* text, std::size_t size, int device) {
  abi::Uuid id{};
  cuda::node_device_uuid(id, device);
  unsigned char b[16];
  std::memcpy(b, &id, sizeof b);
  std::snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

void note_constants() {
  client::note(
      "note",
      "NVML's utilisation, temperature, power, energy and clock readings are constants: they are not simulated");
}

}  // namespace phantora::libs::nvml
