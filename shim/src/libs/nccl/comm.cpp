// Communicators: membership is the core's business (kCommInit and kCommSplit return when all members have called),
// their device memory is charged here, and unique ids are made so that two runs make the same ones.
#include "libs/nccl/comm.hpp"

#include <cstdio>
#include <cstring>
#include <new>

#include "message.hpp"
#include "phantora/adaptor_api.h"

namespace phantora::libs::nccl {
namespace {

constexpr std::uint64_t kMagic = 0x6c63636e68706850ULL;

std::string& error_text() {
  static thread_local std::string text;
  return text;
}

std::string name_of(const abi::NcclUniqueId& id) {
  static const char* const kDigits = "0123456789abcdef";
  std::string name;
  std::size_t used = sizeof id.internal;
  while (used > 0 && id.internal[used - 1] == 0) --used;
  for (std::size_t i = 0; i < used; ++i) {
    name += kDigits[static_cast<unsigned char>(id.internal[i]) >> 4];
    name += kDigits[id.internal[i] & 0xf];
  }
  return name;
}

std::string label_of(const abi::NcclConfig* config) {
  if (config == nullptr || config->magic != abi::kNcclMagic || config->size < sizeof(abi::NcclConfig)) return {};
  return config->comm_name == nullptr ? std::string() : std::string(config->comm_name);
}

// A communicator that the core numbered `id`. Null when the device has no room for it.
Comm* make(std::uint32_t id, int ranks, int rank, int ordinal, int node_device) {
  const wire::RunHeader* header = client::header();
  const std::uint64_t bytes = header == nullptr ? 0 : header->gpu.nccl_comm_bytes;
  if (!take_memory(node_device, bytes, wire::MemoryKind::kCommunicator)) {
    set_last_error("out of device memory for the communicator's buffers (" + std::to_string(bytes) + " bytes)");
    return nullptr;
  }
  auto* comm = new Comm;
  comm->magic = kMagic;
  comm->id = id;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->ordinal = ordinal;
  comm->node_device = node_device;
  comm->taken_bytes = bytes;
  comm->sends.resize(static_cast<std::size_t>(ranks));
  comm->receives.resize(static_cast<std::size_t>(ranks));
  return comm;
}

int explain(wire::Status status, const char* what) {
  set_last_error(std::string(what) + ": the simulator refused it (status " +
                 std::to_string(static_cast<unsigned>(status)) + "); the run's report says why");
  return status == wire::Status::kAborted || status == wire::Status::kEnding ? abi::kNcclRemoteError
                                                                             : abi::kNcclInternalError;
}

int run_init(Initialisation& wanted) {
  std::uint32_t id = 0;
  if (!client::null_mode()) {
    client::Body body;
    body.string(wanted.id).u32(static_cast<std::uint32_t>(wanted.ranks)).u32(static_cast<std::uint32_t>(wanted.rank));
    body.string(wanted.label);
    std::vector<std::byte> reply;
    const wire::Status status = client::request(wire::MessageType::kCommInit, body.span(), reply);
    if (status != wire::Status::kOk) return explain(status, "ncclCommInitRank");
    client::Reader reader(reply);
    id = reader.u32();
    if (!reader.ok()) return abi::kNcclInternalError;
  }
  *wanted.target = make(id, wanted.ranks, wanted.rank, wanted.ordinal, wanted.node_device);
  return *wanted.target == nullptr ? abi::kNcclUnhandledCudaError : abi::kNcclSuccess;
}

int run_split(Initialisation& wanted) {
  *wanted.target = nullptr;
  if (client::null_mode()) {
    if (wanted.color < 0) return abi::kNcclSuccess;
    Comm* comm = make(0, wanted.parent->ranks, wanted.parent->rank, wanted.ordinal, wanted.node_device);
    if (comm == nullptr) return abi::kNcclUnhandledCudaError;
    comm->sized = wanted.parent->ranks == 1;
    *wanted.target = comm;
    return abi::kNcclSuccess;
  }
  client::Body body;
  body.u32(wanted.parent->id).i32(wanted.color).i32(wanted.key).string(wanted.label);
  std::vector<std::byte> reply;
  const wire::Status status = client::request(wire::MessageType::kCommSplit, body.span(), reply);
  if (status != wire::Status::kOk) return explain(status, "ncclCommSplit");
  client::Reader reader(reply);
  const std::uint32_t id = reader.u32(), ranks = reader.u32(), rank = reader.u32();
  if (!reader.ok()) return abi::kNcclInternalError;
  if (wanted.color < 0) return abi::kNcclSuccess;  // not a member: the communicator is null
  *wanted.target = make(id, static_cast<int>(ranks), static_cast<int>(rank), wanted.ordinal, wanted.node_device);
  return *wanted.target == nullptr ? abi::kNcclUnhandledCudaError : abi::kNcclSuccess;
}

Initialisation here(void** target) {
  Initialisation wanted{};
  wanted.target = target;
  wanted.ordinal = current_device();
  wanted.node_device = current_node_device();
  return wanted;
}

int init(void** target, int ranks, const std::string& id, int rank, const abi::NcclConfig* config) {
  if (target == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    set_last_error("invalid rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    return abi::kNcclInvalidArgument;
  }
  client::ensure_driving();
  Initialisation wanted = here(target);
  wanted.run = run_init;
  wanted.id = id;
  wanted.label = label_of(config);
  wanted.ranks = ranks;
  wanted.rank = rank;
  return submit(std::move(wanted));
}

int split(Comm* parent, int color, int key, void** target, const abi::NcclConfig* config) {
  if (parent == nullptr || target == nullptr || color < -1) {
    set_last_error("ncclCommSplit: invalid communicator or colour");
    return abi::kNcclInvalidArgument;
  }
  if (parent->aborted || parent->finalized) {
    set_last_error("ncclCommSplit: the communicator was aborted or finalized");
    return abi::kNcclInvalidUsage;
  }
  client::ensure_driving();
  Initialisation wanted = here(target);
  wanted.run = run_split;
  wanted.parent = parent;
  wanted.color = color;
  wanted.key = key;
  wanted.label = label_of(config);
  return submit(std::move(wanted));
}

int destroy(Comm* comm, bool abort) {
  if (comm == nullptr) return abi::kNcclSuccess;
  if (!client::null_mode() && !comm->aborted) {
    client::Body body;
    body.u32(comm->id).u8(abort ? 1 : 0);
    std::vector<std::byte> reply;
    client::request(wire::MessageType::kCommDestroy, body.span(), reply);
  }
  give_memory(comm->node_device, comm->taken_bytes, wire::MemoryKind::kCommunicator);
  comm->taken_bytes = 0;
  comm->aborted = true;
  // Kept as a small tombstone: pending values and watchdogs of the framework may still look at it.
  comm->magic = 0;
  return abi::kNcclSuccess;
}

}  // namespace

Comm* from(void* comm) {
  auto* state = static_cast<Comm*>(comm);
  return state != nullptr && state->magic == kMagic ? state : nullptr;
}

void set_last_error(const std::string& text) { error_text() = text; }
const std::string& last_error() { return error_text(); }

}  // namespace phantora::libs::nccl

namespace abi = phantora::abi;
namespace nccl = phantora::libs::nccl;
namespace client = phantora::client;

PHANTORA_EXPORT int ncclGetVersion(int* version) {
  if (version == nullptr) return abi::kNcclInvalidArgument;
  *version = abi::kNcclVersion;
  return abi::kNcclSuccess;
}

// Rank and a counter make an id unique, and the same in every run; the clock tells processes of one rank apart.
PHANTORA_EXPORT int ncclGetUniqueId(abi::NcclUniqueId* id) {
  static std::atomic<std::uint32_t> counter{0};
  if (id == nullptr) return abi::kNcclInvalidArgument;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "phantora:%d:%u:%llu", client::world_rank(), counter.fetch_add(1),
                static_cast<unsigned long long>(client::now_ns()));
  return abi::kNcclSuccess;
}

PHANTORA_EXPORT int ncclCommInitRankConfig(void** comm, int ranks, abi::NcclUniqueId id, int rank,
                                           abi::NcclConfig* config) {
  return nccl::init(comm, ranks, nccl::name_of(id), rank, config);
}
PHANTORA_EXPORT int ncclCommInitRank(void** comm, int ranks, abi::NcclUniqueId id, int rank) {
  return nccl::init(comm, ranks, nccl::name_of(id), rank, nullptr);
}
PHANTORA_EXPORT int ncclCommInitRankScalable(void** comm, int ranks, int rank, int id_count, abi::NcclUniqueId* ids,
                                             abi::NcclConfig* config) {
  if (id_count < 1 || ids == nullptr) return abi::kNcclInvalidArgument;
  return nccl::init(comm, ranks, nccl::name_of(ids[0]), rank,
                    config);  // further ids only spread the real one's sockets
}

extern "C" int cudaSetDevice(int device);
extern "C" int ncclGroupStart();
extern "C" int ncclGroupEnd();

PHANTORA_EXPORT int ncclCommInitAll(void** comms, int count, const int* devices) {
  if (comms == nullptr || count < 1) return abi::kNcclInvalidArgument;
  abi::NcclUniqueId id;
  ncclGetUniqueId(&id);
  const int before = phantora::libs::current_device();
  int error = ncclGroupStart();
  for (int i = 0; i < count; ++i) {
    cudaSetDevice(devices == nullptr ? i : devices[i]);
    if (error == abi::kNcclSuccess) error = ncclCommInitRank(&comms[i], count, id, i);
  }
  cudaSetDevice(before);
  const int end = ncclGroupEnd();
  return error != abi::kNcclSuccess ? error : end;
}

PHANTORA_EXPORT int ncclCommSplit(void* comm, int color, int key, void** target, abi::NcclConfig* config) {
  return nccl::split(nccl::from(comm), color, key, target, config);
}

// Shrinking is a split in which the excluded ranks take no part: they do not call it. The core cannot know a membership
// without their call, so only an empty exclusion list is answered.
PHANTORA_EXPORT int ncclCommShrink(void* comm, int* excluded, int count, void** target, abi::NcclConfig* config, int) {
  nccl::Comm* parent = nccl::from(comm);
  if (parent == nullptr || count < 0 || (count > 0 && excluded == nullptr)) return abi::kNcclInvalidArgument;
  if (count == 0) return nccl::split(parent, 0, parent->rank, target, config);
  phantora::libs::unsupported("ncclCommShrink", "leaving ranks out is not simulated");
  nccl::set_last_error("ncclCommShrink is not supported by the simulator");
  return abi::kNcclInvalidUsage;
}

PHANTORA_EXPORT int ncclCommFinalize(void* comm) {
  nccl::Comm* state = nccl::from(comm);
  if (state == nullptr) return abi::kNcclInvalidArgument;
  state->finalized = true;
  return abi::kNcclSuccess;
}
PHANTORA_EXPORT int ncclCommDestroy(void* comm) { return nccl::destroy(nccl::from(comm), false); }
PHANTORA_EXPORT int ncclCommAbort(void* comm) { return nccl::destroy(nccl::from(comm), true); }

PHANTORA_EXPORT int ncclCommCount(const void* comm, int* count) {
  const nccl::Comm* state = nccl::from(const_cast<void*>(comm));
  if (state == nullptr || count == nullptr) return abi::kNcclInvalidArgument;
  *count = state->ranks;
  return abi::kNcclSuccess;
}
PHANTORA_EXPORT int ncclCommCuDevice(const void* comm, int* device) {
  const nccl::Comm* state = nccl::from(const_cast<void*>(comm));
  if (state == nullptr || device == nullptr) return abi::kNcclInvalidArgument;
  *device = state->ordinal;
  return abi::kNcclSuccess;
}
PHANTORA_EXPORT int ncclCommUserRank(const void* comm, int* rank) {
  const nccl::Comm* state = nccl::from(const_cast<void*>(comm));
  if (state == nullptr || rank == nullptr) return abi::kNcclInvalidArgument;
  *rank = state->rank;
  return abi::kNcclSuccess;
}
// Polled by watchdogs: reads memory and nothing else.
PHANTORA_EXPORT int ncclCommGetAsyncError(void* comm, int* error) {
  const nccl::Comm* state = nccl::from(comm);
  if (state == nullptr || error == nullptr) return abi::kNcclInvalidArgument;
  *error = state->async_error.load();
  return abi::kNcclSuccess;
}

PHANTORA_EXPORT const char* ncclGetErrorString(int result) {
  static const char* const kTexts[] = {"no error",
                                       "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                       "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                       "internal error - please report this issue to the NCCL developers",
                                       "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                       "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress",
                                       "operation timed out"};
  return result >= 0 && result <= abi::kNcclTimeout ? kTexts[result] : "unknown result code";
}
PHANTORA_EXPORT const char* ncclGetLastError(void*) { return nccl::last_error().c_str(); }

// ---- reductions with a factor ---------------------------------------------------------------------------------
PHANTORA_EXPORT int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, void* comm) {
  nccl::Comm* state = nccl::from(comm);
  const phantora::wire::DataType data_type = phantora::libs::from_nccl_type(type);
  if (state == nullptr || op == nullptr || scalar == nullptr || data_type == phantora::wire::DataType::kNone)
    return abi::kNcclInvalidArgument;
  nccl::PreMultiply entry;
  entry.alive = true;
  entry.type = data_type;
  constexpr int kHostImmediate = 1;
  if (residence == kHostImmediate) {
    std::memcpy(entry.value, scalar, phantora::libs::bytes_of(data_type));
  } else {
    entry.device_value = scalar;
  }
  // A number is not used again: an operation in flight may still refer to a destroyed one.
  state->operators.push_back(entry);
  *op = abi::kNcclOpCount + static_cast<int>(state->operators.size()) - 1;
  return abi::kNcclSuccess;
}
PHANTORA_EXPORT int ncclRedOpDestroy(int op, void* comm) {
  nccl::Comm* state = nccl::from(comm);
  const int index = op - abi::kNcclOpCount;
  if (state == nullptr || index < 0 || static_cast<std::size_t>(index) >= state->operators.size() ||
      !state->operators[static_cast<std::size_t>(index)].alive)
    return abi::kNcclInvalidArgument;
  state->operators[static_cast<std::size_t>(index)].alive = false;
  return abi::kNcclSuccess;
}

// ---- memory ---------------------------------------------------------------------------------------------------
extern "C" int cudaMalloc(void** pointer, std::size_t bytes);
extern "C" int cudaFree(void* pointer);

PHANTORA_EXPORT int ncclMemAlloc(void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return abi::kNcclInvalidArgument;
  return cudaMalloc(pointer, bytes) == 0 ? abi::kNcclSuccess : abi::kNcclUnhandledCudaError;
}
PHANTORA_EXPORT int ncclMemFree(void* pointer) {
  return cudaFree(pointer) == 0 ? abi::kNcclSuccess : abi::kNcclUnhandledCudaError;
}
// Registration only makes the real library faster; the handle is the buffer itself.
PHANTORA_EXPORT int ncclCommRegister(const void* comm, void* buffer, std::size_t, void** handle) {
  if (nccl::from(const_cast<void*>(comm)) == nullptr || handle == nullptr) return abi::kNcclInvalidArgument;
  *handle = buffer;
  return abi::kNcclSuccess;
}
PHANTORA_EXPORT int ncclCommDeregister(const void* comm, void*) {
  return nccl::from(const_cast<void*>(comm)) == nullptr ? abi::kNcclInvalidArgument : abi::kNcclSuccess;
}
PHANTORA_EXPORT int ncclCommMemStats(void* comm, int stat, std::uint64_t* value) {
  const nccl::Comm* state = nccl::from(comm);
  constexpr int kSuspended = 1, kPersistent = 2, kTotal = 3;
  if (state == nullptr || value == nullptr || stat < 0 || stat > kTotal) return abi::kNcclInvalidArgument;
  *value = stat == kPersistent || stat == kTotal ? state->taken_bytes : 0;
  if (stat == kSuspended) *value = 0;
  return abi::kNcclSuccess;
}
