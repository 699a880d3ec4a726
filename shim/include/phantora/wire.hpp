// The contract between the shim (in every rank) and the simulator core: what lies in shared memory,
// and what travels over the core's socket. Both sides include this header and nothing else of each other.
//
// Shared memory: one memfd made by the core; others map it through PHANTORA_SEGMENT=/proc/<core pid>/fd/<n>.
//   [RunHeader][DeviceState x world_size][name table][ActorBlock x actor_count, each with its ring]
// Times are integer virtual nanoseconds since the start of the run. All integers are little-endian.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace phantora::wire {

inline constexpr std::uint64_t kMagic = 0x31305041544e4850ULL;  // "PHNTAP01"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kWaitSlots = 32;        // threads of one actor that may wait at once
inline constexpr std::uint32_t kEventSlots = 4096;     // resolved events, slot = event % kEventSlots
inline constexpr std::uint32_t kStreamSlots = 1024;    // resolved streams, slot = stream % kStreamSlots
inline constexpr std::uint32_t kNameSlots = 16384;     // kernel and op names already known to the core
inline constexpr std::uint32_t kCallKinds = 32;
inline constexpr std::uint32_t kClockSlots = 4096;     // final clocks of ended child processes, by pid
inline constexpr std::uint64_t kUnresolved = ~0ULL;

// Host cost classes; the host profile gives ns for each (RunHeader::host_cost_ns). Nothing else moves H.
enum class CallKind : std::uint8_t {
  kFree = 0,  // create/destroy, look-ups, attribute reads: always 0 ns
  kLaunch, kGemm, kLibrary, kMemcpy, kMemset, kEventRecord, kStreamWait, kSync, kQuery,
  kMalloc, kFreeMemory, kHostAlloc, kCollective, kCommInit, kOp, kStore, kFileLock, kGraphLaunch, kModuleLoad,
  kCount
};
static_assert(static_cast<std::uint32_t>(CallKind::kCount) <= kCallKinds);

enum class ClockMode : std::uint32_t { kModelled = 1, kMeasured = 2 };

// What the shim answers about the GPU; filled by the core from the GPU profile (same field names there).
struct GpuProperties {
  char name[256];
  char uuid_prefix[16];
  std::uint64_t total_bytes;          // what cudaMemGetInfo calls total
  std::uint64_t context_bytes;        // taken by a process's CUDA context
  std::uint64_t compute_major, compute_minor, sm_count, clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes;
  std::uint64_t shared_per_block, shared_per_block_optin, shared_per_sm, reserved_shared_per_block;
  std::uint64_t registers_per_block, registers_per_sm, max_threads_per_sm, max_blocks_per_sm;
  std::uint64_t pcie_domain, power_limit_mw, driver_version, nvlink_count, copy_engines;
  std::uint64_t nccl_comm_bytes;      // device memory a NCCL communicator takes (source in the profile)
  std::uint64_t spare[8];
};

enum class MemoryKind : std::uint8_t { kAllocation, kContext, kCommunicator, kLibrary };

struct alignas(64) DeviceState {            // one per simulated GPU (global index = rank that owns it)
  std::atomic<std::uint64_t> used_bytes;    // everything: context, cudaMalloc, NCCL, libraries
  std::atomic<std::uint64_t> other_bytes;   // the part that is not cudaMalloc/cuMem*
  std::atomic<std::uint64_t> peak_bytes;    // highest used_bytes
  std::atomic<std::uint64_t> context_bytes, communicator_bytes;  // parts of other_bytes; its rest is libraries' workspaces
  std::uint64_t spare[3];
};

struct alignas(64) RunHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  char build_id[40];                         // of the core; the shim compares its own
  std::uint32_t world_size, gpus_per_node, actor_count, ring_slots;
  std::uint64_t device_offset, name_offset, clock_offset, actor_offset, actor_stride, total_bytes;
  std::int64_t epoch_ns;                     // Unix time at virtual time 0
  std::uint64_t seed;
  ClockMode clock_mode;
  std::uint32_t cpu_count;                   // CPUs the ranks are told of
  char rpc_name[104];                        // abstract Unix socket name, without the leading NUL
  std::uint64_t rpc_token;                   // must be sent in Hello
  std::uint64_t launch_latency_ns;           // issue to earliest start (rule 5); used by the core only
  std::uint64_t host_cost_ns[kCallKinds];
  GpuProperties gpu;
  alignas(64) std::atomic<std::uint64_t> global_ns;   // finalised virtual time: what helper threads read
  alignas(64) std::atomic<std::uint32_t> doorbell;    // futex: ranks bump and wake it when the core should look
  std::atomic<std::uint32_t> core_asleep;             // 1 while the core waits on the doorbell
  std::atomic<std::uint32_t> run_state;               // 0 starting, 1 running, 2 ending (everyone exits)
};

enum class ActorState : std::uint32_t { kFree = 0, kClaimed = 1, kLive = 2, kExited = 3 };

struct WaitSlot {                            // the reply to one blocked thread
  std::atomic<std::uint32_t> state;          // futex: 0 free, 1 waiting, 2 answered
  std::uint32_t status;                      // 0 ok; else a Status value
  std::uint64_t resume_ns;                   // H becomes max(H, resume_ns)
  std::uint64_t value;                       // queries: 1 done, 0 not; elapsed: ns
};

struct EventSlot {                           // written by the core when an event's completion is known
  std::atomic<std::uint64_t> key;            // event << 32 | generation; 0 none. Written last, re-read by readers
  std::atomic<std::uint64_t> completion_ns;
};

struct StreamSlot {                          // highest resolved op of a stream
  std::atomic<std::uint64_t> key;            // stream << 48 | stream_sequence (low 48 bits)
  std::atomic<std::uint64_t> completion_ns;
};

struct alignas(4096) ActorBlock {
  std::atomic<std::uint32_t> state;          // ActorState
  std::uint32_t rank;
  std::atomic<std::uint32_t> pid;
  std::uint32_t device;                      // default device (index inside the node)
  alignas(64) std::atomic<std::uint64_t> host_ns;   // H. Published after the record it belongs to
  alignas(64) std::atomic<std::uint64_t> head;      // next slot the rank writes
  alignas(64) std::atomic<std::uint64_t> tail;      // next slot the core reads
  std::atomic<std::uint32_t> space_futex;           // core bumps it after draining when producer_waits is set
  std::atomic<std::uint32_t> producer_waits;
  alignas(64) std::atomic<std::uint32_t> outside;   // driving threads inside a blocking libc call (a hint for parking)
  std::atomic<std::uint32_t> parked;                // core: 1 while it treats this actor as parked
  std::atomic<std::uint64_t> floor_ns;              // core: after a forced event, H must be at least this on resuming
  std::atomic<std::uint64_t> timed_wait_ns;         // virtual deadline of a driving thread's outside wait; kUnresolved none
  std::atomic<std::uint32_t> timer_futex;           // core bumps and wakes it when global_ns >= next_timer_ns
  std::atomic<std::uint64_t> next_timer_ns;         // earliest helper-thread deadline; kUnresolved none
  std::atomic<std::uint64_t> host_allocated_bytes;
  std::atomic<std::uint64_t> torch_reserved_peak, torch_allocated_peak;  // set by the runtime at exit from torch's own statistics
  alignas(64) WaitSlot wait[kWaitSlots];
  StreamSlot streams[kStreamSlots];
  EventSlot events[kEventSlots];
  // the ring of RunHeader::ring_slots Records follows at the next multiple of 128 bytes (record_offset)
};
inline constexpr std::uint64_t record_offset = (sizeof(ActorBlock) + 127) / 128 * 128;

struct ChildClock {                          // kClockSlots of them at clock_offset; slot = pid % kClockSlots
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> clock_ns;       // the child's own clock when it ended (rule 12)
};

enum class RecordType : std::uint8_t {
  kNone = 0, kKernel, kGemm, kMemcpy, kMemset, kEventRecord, kStreamWait, kCollective,
  kWait, kQuery, kElapsed, kSleep, kMark, kMemory, kHostWork, kExit, kCount
};

enum class DataType : std::uint8_t {         // numbering ours; names in the profiles
  kNone, kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16, kFp8E4M3, kFp8E5M2, kTf32,
  kInt16, kBool, kComplex64, kComplex128, kFp4
};

struct KernelOp {
  std::uint64_t name;                        // name_hash() of the mangled name
  std::uint32_t grid[3], block[3];
  std::uint32_t shared_bytes;
  std::uint32_t launch_in_op;                // n-th launch inside op
  std::uint64_t elements;                    // first kernel argument where the name says it is a count; else 0
  std::uint64_t op;                          // name_hash() of the innermost ATen op; 0 none
  std::uint64_t op_input_bytes, op_output_bytes;  // 0 unknown
};
struct GemmOp {
  std::uint32_t m, n, k, batch;              // column-major as cuBLAS takes it
  DataType type_a, type_b, type_c, compute;
  std::uint8_t transpose_a, transpose_b, epilogue, grouped;
  std::uint64_t name;                        // entry point
  std::uint64_t op;
};
enum class CopyKind : std::uint8_t { kHostToDevice = 1, kDeviceToHost, kDeviceToDevice, kPeer, kHostToHost };
struct CopyOp {
  std::uint64_t bytes;
  CopyKind kind;
  std::uint8_t pinned;                       // the host side is page-locked
  std::uint8_t peer_device;
};
struct EventOp { std::uint32_t event, generation; };
enum class CollectiveKind : std::uint8_t {
  kAllReduce = 1, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kSend, kRecv, kGather, kScatter, kBarrier
};
struct CollectiveOp {
  std::uint32_t comm;                        // index given by CommInit / CommSplit
  std::int32_t peer;                         // root, or peer of send/recv; -1 none
  CollectiveKind kind;
  DataType type;
  std::uint8_t reduction;                    // ncclRedOp_t
  std::uint8_t group_last;                   // last of its group
  std::uint32_t group;                       // ops with the same non-zero group start and end together
  std::uint64_t count;                       // elements, as the caller passed it
  std::uint64_t bytes;                       // payload of this rank
  std::uint64_t sequence;                    // n-th collective of this rank on comm (send/recv: n-th with that peer and direction)
};
enum class WaitKind : std::uint8_t { kStream = 1, kEvent, kDevice, kResume };
struct WaitOp {
  std::uint32_t slot;
  WaitKind kind;
  std::uint8_t peek;
  std::uint32_t event, generation;           // kEvent, and the first of kElapsed
  std::uint32_t event_end, generation_end;   // kElapsed: second event
};
struct SleepOp { std::uint32_t slot; std::uint32_t reserved; std::uint64_t until_ns; };
enum class MarkKind : std::uint8_t { kFirstForward = 1, kOptimizerStep, kBackward, kText, kOutOfMemory, kPhase };
struct MarkOp { MarkKind kind; std::uint8_t reserved[7]; std::uint64_t value; std::uint64_t text; /* name_hash */ };
struct MemoryOp {                            // what a device holds after the change, as in DeviceState
  std::int64_t delta_bytes;
  std::uint64_t used_bytes, other_bytes, requested_bytes, context_bytes, communicator_bytes;
};
struct HostWorkOp { std::uint64_t duration_ns; std::uint64_t text; };
struct ExitOp { std::int32_t status; };

struct alignas(128) Record {
  std::uint64_t index;                       // equals the slot's running number; anything else is malformed
  std::uint64_t issue_ns;                    // H when the call was made
  std::uint32_t check;                       // record_check()
  RecordType type;
  std::uint8_t device;                       // index inside the node
  std::uint16_t stream;                      // process-local ordinal; 0 legacy default stream of `device`
  std::uint64_t stream_sequence;             // n-th op on that stream by this actor (from 1); 0 where no stream is meant
  union {
    std::uint64_t words[12];
    KernelOp kernel; GemmOp gemm; CopyOp copy; EventOp event; CollectiveOp collective; WaitOp wait; SleepOp sleep;
    MarkOp mark; MemoryOp memory; HostWorkOp host_work; ExitOp exit;
  };
};
static_assert(sizeof(Record) == 128);

// FNV-1a; 0 is never returned.
constexpr std::uint64_t name_hash(const char* text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (; *text != '\0'; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3ULL;
  return hash == 0 ? 1 : hash;
}

// A torn or scribbled record fails this with overwhelming probability. Covers everything but `check`.
inline std::uint32_t record_check(const Record& record) {
  std::uint64_t sum = 0x9e3779b97f4a7c15ULL;
  auto mix = [&sum](std::uint64_t word) { sum = (sum ^ word) * 0xff51afd7ed558ccdULL; sum ^= sum >> 32; };
  mix(record.index);
  mix(record.issue_ns);
  mix(static_cast<std::uint64_t>(record.type) | static_cast<std::uint64_t>(record.device) << 8 |
      static_cast<std::uint64_t>(record.stream) << 16);
  mix(record.stream_sequence);
  for (std::uint64_t word : record.words) mix(word);
  return static_cast<std::uint32_t>(sum ^ (sum >> 29));
}

// ---- messages on the core's socket -------------------------------------------------------------------------
// Each thread that needs one opens a connection, sends Hello, then strictly request, reply. All frames:
//   MessageHeader, then `bytes` of body. Strings and blobs in bodies: u32 length, then the bytes.
enum class MessageType : std::uint16_t {
  kHello = 1,        // u64 token, u32 pid, u32 tid                    -> (empty)
  kName,             // u64 hash, string                               -> (empty)
  kNote,             // string kind, string text (kinds: "unsupported", "note", "failure") -> (empty). Once per text.
  kAttachChild,      // u32 rank, u32 pid                              -> u32 actor   (further actor of a rank)
  kStoreSet,         // string store, string key, blob                 -> (empty)
  kStoreGet,         // string store, string key, u64 timeout_ns       -> blob; status kTimeout
  kStoreAdd,         // string store, string key, i64                  -> i64
  kStoreWait,        // string store, u32 n, n keys, u64 timeout_ns    -> (empty); status kTimeout
  kStoreCheck,       // string store, u32 n, n keys                    -> u8
  kStoreDelete,      // string store, string key                       -> u8
  kStoreCompareSet,  // string store, string key, blob expected, blob desired -> blob
  kStoreCount,       // string store                                   -> u64
  kStoreAppend,      // string store, string key, blob                 -> (empty)
  kStoreList,        // string store                                   -> u32 n, n keys
  kOrder,            // string what                                    -> (empty)  returns in (H, rank) order
  kLock,             // string key, u8 shared, u8 try, u64 timeout_ns  -> u8 taken (file locks, in (H, rank) order)
  kUnlock,           // string key                                     -> (empty)
  kCommInit,         // string id, u32 nranks, u32 rank, string label  -> u32 comm  (returns when all members called)
  kCommSplit,        // u32 comm, i32 color, i32 key, string label     -> u32 comm, u32 nranks, u32 rank (color < 0: comm 0)
  kCommInfo,         // u32 comm                                       -> u32 nranks, nranks x u32 world rank
  kCommDestroy,      // u32 comm, u8 abort                             -> (empty)
  kPost,             // u32 comm, u64 sequence, i32 peer (-1 all), u8 kind, blob payload -> (empty), at once: contributes payload
  kFetch,            // u32 comm, u64 sequence, i32 peer (-1 all), u8 kind -> u32 n, n blobs in member order (real wait, no time)
  kHostCollective,   // string group, u64 sequence, u32 nranks, u32 rank, u64 timeout_ns, u64 cost_ns, blob
                     //   -> u32 n, n blobs; all members go on at max(H)+cost (gloo, barriers)
  kHostSend,         // string channel, u64 tag, blob                  -> (empty) at once, carries H
  kHostRecv,         // string channel, u64 tag, u64 timeout_ns        -> blob; goes on at max(own H, sender's H)
  kStackReply,       // string text: a rank's Python stacks, asked for by the core through SIGUSR-style signal
  kCount
};
enum class Status : std::uint32_t { kOk = 0, kTimeout = 1, kRefused = 2, kMalformed = 3, kAborted = 4, kEnding = 5 };

struct MessageHeader {
  std::uint32_t bytes;       // of the body
  MessageType type;
  std::uint8_t driving;      // 1: an event at h_ns in the total order, the actor waits; 0: a peek, answered at once in real time
  std::uint8_t reserved;
  std::uint32_t actor;       // index of the ActorBlock; ~0u none (detached process)
  std::uint32_t sequence;    // echoed
  std::uint64_t h_ns;        // the sender's clock
};
struct ReplyHeader {
  std::uint32_t bytes;
  Status status;
  std::uint32_t sequence;
  std::uint32_t reserved;
  std::uint64_t resume_ns;   // the caller's clock becomes max(own, resume_ns)
};
static_assert(sizeof(MessageHeader) == 24 && sizeof(ReplyHeader) == 24);
inline constexpr std::uint32_t kMaxMessageBytes = 256U << 20;

}  // namespace phantora::wire
