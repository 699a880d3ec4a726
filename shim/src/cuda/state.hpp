// Devices, contexts and the calling thread's place in them.
//
// Three numberings: a *node device* is a GPU of this virtual node (what records carry, and what memory is accounted
// to); an *ordinal* is what the script sees after CUDA_VISIBLE_DEVICES; contexts are handles of the driver API.
#pragma once

#include <cstdint>

#include "client.hpp"
#include "phantora/abi13.hpp"

namespace phantora::cuda {

using abi::Status;

inline constexpr int kMaxDevices = 32;  // per node; the address ranges of more would meet the program
inline constexpr int kMaxContexts = 256;

struct Context {
  int ordinal = 0;
  int node_device = 0;
  bool primary = true;
  std::uint64_t id = 0;
  unsigned flags = 0;
};

// kSuccess, kNoDevice (no run, or nothing visible), or kInitializationError in a process forked after CUDA was
// initialised.
Status initialise();
bool initialised();

int visible_count();              // 0 unless initialise() succeeded
int node_device_of(int ordinal);  // the caller checked the range
int ordinal_of(int node_device);  // -1 where it is not visible

int current_ordinal();  // of the calling thread; 0 unless set
int current_node_device();
Status set_current(int ordinal, bool activate);

// The primary context of an ordinal; makes it, and charges its memory, on first use. Null and a status when it does not
// fit.
Context* primary_context(int ordinal, Status& status);
bool primary_active(int ordinal);
unsigned primary_flags(int ordinal);
void set_primary_flags(int ordinal, unsigned flags);

// The calling thread's context stack, as the driver API sees it.
Context* current_context();
void set_current_context(Context* context);
void push_context(Context* context);
Context* pop_context();
Context* new_context(int ordinal, unsigned flags, Status& status);
bool valid_context(const Context* context);
void destroy_context(Context* context);

// Both APIs call one of these first. `ready` makes the calling thread's current device usable (context included).
Status ready();

// Peer access is between node devices of one process.
Status enable_peer(int from_ordinal, int to_ordinal);
Status disable_peer(int from_ordinal, int to_ordinal);

const wire::GpuProperties& gpu();
Status fill_properties(abi::DeviceProperties& properties, int ordinal);
// CU_DEVICE_ATTRIBUTE_* and cudaDevAttr* share their numbers.
Status device_attribute(int& value, int attribute, int ordinal);
void node_device_uuid(abi::Uuid& uuid, int node_device);
int pci_bus(int node_device);  // bus number; needs no initialisation
void pci_bus_id(char* text, int size, int ordinal);
int ordinal_by_pci(const char* text);  // -1: none

// Gives back what this process holds on every device; at exit, and callable from the _exit hook.
void release_all();

}  // namespace phantora::cuda
