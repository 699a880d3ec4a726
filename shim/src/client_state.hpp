// What the parts of the client share: this process's place in the run and the calling thread's clock.
// Inside the client and the libc wrappers only; everybody else uses client.hpp.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "client.hpp"

namespace phantora::client {

inline constexpr int kEndingStatus = 97;              // exit status of a process that the end of the run stopped
inline constexpr std::uint32_t kNoActor = ~0U;        // MessageHeader::actor of a detached process
inline constexpr int kMaxDevices = 64;                // GPUs of one node
inline constexpr std::uint32_t kGuardReads = 20'000;  // clock reads without an op or wait before they cost time
inline constexpr std::uint64_t kGuardStepNs = 1'000;
inline constexpr int kMaxScopes = 32;  // nested op scopes; deeper ones are charged but not named

// Held for tens of nanoseconds. Yields, because the holder may be preempted and ranks outnumber CPUs.
class SpinLock {
 public:
  void lock();
  bool try_lock() { return flag_.exchange(1, std::memory_order_acquire) == 0; }
  void unlock() { flag_.store(0, std::memory_order_release); }
  void reset() { flag_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> flag_{0};
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

struct State {
  std::atomic<int> mode{static_cast<int>(Mode::kInert)};
  wire::RunHeader* header = nullptr;
  char segment_path[104] = {};  // for children whose environment was replaced
  wire::ActorBlock* block = nullptr;
  Record* ring = nullptr;
  std::uint32_t slots = 0;
  std::uint32_t actor = kNoActor;
  int rank = -1;  // kept by detached children: whose child this is
  pid_t pid = 0;  // differs from getpid() in a vfork child, which shares this memory

  SpinLock lock;                        // ring, sequences and moves of `clock`
  std::atomic<std::uint64_t> clock{0};  // actor: H. Detached: the process's own clock
  std::atomic<std::uint64_t> seen{0};   // detached: what clock reads show; time-outs move it, stamps ignore it
  std::uint64_t head = 0;               // next slot; records from published_head on are not visible to the core yet
  std::uint64_t published_head = 0;
  std::uint64_t tail = 0;              // last value read from the core
  std::uint64_t sequence[65536] = {};  // by stream ordinal; ordinal 0 stands apart, per device
  std::uint64_t default_sequence[kMaxDevices] = {};
  bool stream_used[65536] = {};
  std::uint16_t used_streams[65536] = {};
  std::uint8_t used_device[65536] = {};
  std::uint32_t used_count = 0;
  bool default_streams_mixed = false;  // stream 0 of more than one device: their slot in the table is ambiguous

  std::atomic<std::uint32_t> slot_bits{0};  // wait slots in use
  std::atomic<std::uint32_t> drivers{0};    // living driving threads
  std::atomic<std::uint32_t> blocked{0};    // of those, inside a blocking libc call
  std::atomic<std::uint64_t> identity{0};   // names this process free of pids: run seed, rank, path of forks
  std::atomic<std::uint32_t> forks{0};
  std::atomic<bool> exited{false};   // kExit sent
  std::uint64_t cpu_counted_ns = 0;  // measured clock: CPU time already in a detached child's clock
};

struct Scope {
  std::uint64_t name;
  std::uint64_t input_bytes;
  std::uint64_t first;  // ring index of the first record that may belong to it
  std::uint32_t launches;
  std::uint32_t pending;  // its own kernels that still wait for the output bytes
};

// Plain data, so that it needs no construction and is usable in the earliest and the last moments of a thread.
struct Thread {
  bool driving;
  bool leads;           // detached child: its first thread, whose clock is the process's
  bool named;           // identity given (by pthread_create, attach or a fork)
  std::uint8_t pins;    // 0 not looked at, 1 an ordinary thread, 2 a DataLoader's pinning thread: never drives
  bool polled_child;    // the last look at a child found it running: sleeps take real time too (rule 9)
  std::uint32_t reads;  // clock reads since the last op or wait
  std::uint32_t depth;
  std::uint32_t pending;  // sum over the open scopes
  std::uint64_t last;     // index after this thread's last record
  int connection;         // file descriptor + 1; 0 none
  int wake_fd;            // likewise: event descriptor that ends a poll when a deadline passes
  std::uint32_t messages;
  std::uint32_t created;  // threads this one created
  std::uint64_t identity;
  std::uint64_t random_blocks;
  std::uint64_t own;     // helper thread: clock handed to it or slept by it (rule 12); free of real time. A detached
                         // child's further threads: their ops too
  std::uint64_t seen;    // helper thread: global time when its last untracked wait ended
  std::uint32_t behind;  // helper thread: waits in a row whose deadline global time had long passed when they ended; it
                         // sees the deadline meanwhile, as if it had been woken in time. 0: it sees global time
  Scope scopes[kMaxScopes];
};

extern State g_state;
extern thread_local Thread t_thread __attribute__((tls_model("initial-exec")));

inline Mode current_mode() { return static_cast<Mode>(g_state.mode.load(std::memory_order_relaxed)); }
// True where clocks are virtual. One load and compare: what every wrapper pays in a process outside a run.
inline bool is_virtual() { return g_state.mode.load(std::memory_order_relaxed) >= static_cast<int>(Mode::kDetached); }
inline bool is_actor() { return g_state.mode.load(std::memory_order_relaxed) == static_cast<int>(Mode::kActor); }
inline bool is_driver() { return is_actor() && t_thread.driving; }

void move_clock_to(std::uint64_t clock_ns);  // actor or detached process: clock = max(clock, clock_ns); publishes
void clock_read_guard();                     // counts one clock read or empty poll of the calling thread

wire::ActorBlock& actor_block(std::uint32_t actor);
bool map_segment(const char* path);  // false (and errno) when it cannot be mapped; exits on a build mismatch
void detach(int rank, std::uint64_t clock_ns, std::uint64_t identity);
void reset_after_fork();  // in the child: leave the parent's ring, connections and slots
void close_connections();
void send_exit(int status);                 // kExit of an actor, final clock of a detached child; once
[[noreturn]] void end_process(int status);  // exit_group, no handlers
void check_ending();                        // ends the process when the run is over
void fill_null_header();
void register_driver();
void unregister_thread();

void flush_records();         // publish what the calling thread has issued, held back by its op scopes or not
void stop_holding(bool all);  // the calling thread ends, or (all) a fork left this thread alone
void ring_doorbell();         // a thread is about to block: the core must look
void enter_blocking();        // a driving thread goes into a blocking libc call
void leave_blocking();        // ... and comes back: H is at least floor_ns

// An event that a pinning thread records (when the last user of a pinned block happens to be that thread, which is up
// to real time) is no op of the run: it stands for what its stream holds at that moment.
void shadow_event(const Record& record);

// A blocked record and its answer. A helper thread's peek is not asked while an op scope holds records back (it must
// not cut the scope): `asked` is false then, and nothing is known.
struct Answer {
  wire::Status status;
  std::uint64_t resume_ns;
  std::uint64_t value;
  bool asked = true;
};
Answer ask(Record& record);

std::uint64_t mix_identity(std::uint64_t parent, std::uint64_t ordinal);

// System calls that are not wrapped. timeout_ns < 0: none.
long futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t timeout_ns, bool shared);
long futex_wake(std::atomic<std::uint32_t>& word, int count, bool shared);
std::uint64_t real_ns(clockid_t clock);
void real_sleep_ns(std::uint64_t ns);
pid_t real_tid();
void complain(const char* text);  // one line on stderr, "phantora: " before it

}  // namespace phantora::client
