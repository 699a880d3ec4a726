// The shim's way to the core: this rank's ring, waits, queries, messages, and the clock of the calling thread.
// Every intercepted call that costs or orders anything goes through here; nothing else touches shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phantora/wire.hpp"

namespace phantora::client {

using wire::CallKind;
using wire::Record;

// How this process stands. Inert: not part of a run, or a child that has not issued GPU work.
// Null: PHANTORA_NULL=1, values and memory are real, but no records, costs or virtual clock.
enum class Mode { kInert, kNull, kDetached, kActor };
Mode mode();
bool null_mode();
const wire::RunHeader* header();   // nullptr when there is no run (and in null mode: a process-local one with the GPU filled in)
int world_rank();                  // of this process's actor; -1 when none
int node_devices();                // GPUs this process can see before CUDA_VISIBLE_DEVICES
wire::DeviceState& device_state(int node_device);

// Called by the launcher in a freshly forked rank; `phantora_attach` exports it.
void attach(int rank);
// First GPU work of a thread: makes it a driving thread, and makes a detached child an actor (kAttachChild).
void ensure_driving();
bool driving();                    // does the calling thread move H?

// The clock of the calling thread: H for driving threads, global time for helpers, own clock for detached children.
std::uint64_t now_ns();
std::uint64_t stamp_ns();          // the clock to hand on with an item: as now_ns(), but a helper's own clock, free of global time
void join(std::uint64_t clock_ns); // the calling thread's clock becomes max(own, clock_ns)
void charge(CallKind kind);        // H += host cost of one such call
void advance(std::uint64_t ns);    // H += ns (host work: ops, sleeps of detached children)

// Fills index, issue_ns, stream_sequence, check; charges `kind`; publishes record, then H. `record.stream`/`device` are set
// by the caller; stream_sequence is counted here for types that run on a stream. Blocks while the ring is full.
void submit(CallKind kind, Record& record);

// Waits and queries charge nothing themselves: the caller charges kSync or kQuery first.
// Blocking waits of a driving thread; H becomes max(H, completion). A helper thread's wait polls resolved times in real time.
void wait_stream(int device, std::uint16_t stream);
void wait_event(std::uint32_t event, std::uint32_t generation);
void wait_device(int device);
// True if and only if complete at the calling thread's time. Driving threads may block until it is known; helpers peek.
bool query_stream(int device, std::uint16_t stream);
bool query_event(std::uint32_t event, std::uint32_t generation);
std::uint64_t completion_ns(std::uint32_t event, std::uint32_t generation);   // waits until it is known
// completion(end) - completion(start); both must be complete (query_event first: the core answers when both are known).
std::int64_t elapsed_ns(std::uint32_t start, std::uint32_t start_generation, std::uint32_t end, std::uint32_t end_generation);
void sleep_until(std::uint64_t virtual_ns);

// Request/reply over the core's socket; the calling thread's clock joins the reply's. Body building: see message.hpp.
wire::Status request(wire::MessageType type, std::span<const std::byte> body, std::vector<std::byte>& reply);
void note(std::string_view kind, std::string_view text);      // once per text and process
std::uint64_t intern(const char* name);                       // name_hash(), told to the core once

// Op scopes from the torch adaptor (per thread, nested). Records of an open op stay unpublished until it ends (or a wait),
// so that the output bytes can be filled in.
void op_begin(const char* name, std::uint64_t input_bytes);
void op_end(std::uint64_t output_bytes);

// Actions on device bytes in program order (copies, small ops, collective payloads). Run at once when nothing earlier is
// pending and `ready` says so; else queued and run at the next wait. Implemented in values.cpp.
void run_in_order(bool (*try_run)(void*), void (*destroy)(void*), void* context);
bool values_pending();
void drain_values();               // waits in real time for what is missing; called by waits after the virtual wait

}  // namespace phantora::client
