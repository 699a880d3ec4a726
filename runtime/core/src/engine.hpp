// The conservative event engine. Ranks push records, publish their clock H and wait; the engine drains the rings,
// resolves streams as max-plus, and processes timed events strictly below the earliest time at which anybody may still
// issue.
//
//   streams.cpp      ops, events, copies: start and end as soon as their inputs are known
//   waits.cpp        waits, queries, elapsed times, sleeps; resolved tables and wake-ups
//   collectives.cpp  units, collectives, send/recv
//   requests.cpp     messages on the socket, communicators
//   stuck.cpp        nothing can be processed: parked actors, forced events, hangs
//   outcome.cpp      verdicts, steps; report.cpp: the report
//   live.cpp         what a live view is shown
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "breakdown.hpp"
#include "broker.hpp"
#include "config.hpp"
#include "event_stream.hpp"
#include "host_messages.hpp"
#include "json.hpp"
#include "locks.hpp"
#include "model.hpp"
#include "oplog.hpp"
#include "ops.hpp"
#include "parking.hpp"
#include "request.hpp"
#include "segment.hpp"
#include "server.hpp"
#include "stores.hpp"
#include "timeline.hpp"

namespace phantora::core {

class Engine final : public Replies {
 public:
  Engine(const Config& config, Segment& segment, Server& server);
  ~Engine() override;
  // Until all ranks have ended or `stop` is set. Writes the report; returns the exit code of the core.
  int run(const std::atomic<bool>& stop);
  // One turn of the loop: takes in what is there, processes what can be. False when there was nothing to do.
  bool turn();
  // One message, as if it came from the socket.
  void receive(Incoming& incoming);

  void reply(const RequestPtr& request, wire::Status status, Instant resume, Bytes body) override;
  void refuse(const RequestPtr& request, wire::Status status) override;
  void on_timeout(const RequestPtr& request, std::uint64_t timeout_ns, std::function<void()> act) override;
  void add_note(const std::string& text) override;

 private:
  // ---- engine.cpp: the loop
  void read_clocks();
  bool drain_all();
  bool drain(Actor& actor);
  void handle(Actor& actor, const wire::Record& record);
  bool process_events();
  void publish_time();
  void advance_outputs(bool all);
  void rest();
  void welcome(Actor& actor);
  Instant least_bound() const;
  Instant frontier();
  void block(Actor& actor, std::string doing);
  void unblock(Actor& actor, Instant resume);
  std::uint64_t order_of(const Actor& actor) const {
    return static_cast<std::uint64_t>(actor.rank) << 16 | actor.child;
  }
  void at(Instant time, EventKind kind, Actor& actor, std::function<void()> act);
  Instant issue_time(Actor& actor, const wire::Record& record);
  void log_host(Actor& actor, const wire::Record& record, Instant start, Instant end);

  // ---- streams.cpp
  Stream& stream_of(Actor& actor, std::uint32_t device, std::uint16_t ordinal);
  void on_stream_op(Actor& actor, const wire::Record& record);
  void settle(Stream& stream);  // queue it for resolving
  void settle_all();            // resolve what can be, to a fixed point
  void resolve_pending(Stream& stream);
  void finish_op(Stream& stream, const StreamOp& op, Instant start, Instant end);
  void publish_event(Actor& actor, const Recording& recording);
  std::shared_ptr<Recording> find_recording(Actor& actor, std::uint32_t event, std::uint32_t generation,
                                            bool* superseded = nullptr);
  void wake_stream_waiters(Stream& stream);
  void publish_streams();

  // ---- waits.cpp
  void on_wait(Actor& actor, const wire::Record& record);
  void on_query(Actor& actor, const wire::Record& record);
  void on_elapsed(Actor& actor, const wire::Record& record);
  void on_sleep(Actor& actor, const wire::Record& record);
  bool known_completion(Actor& actor, const wire::Record& record, Instant* completion);
  void wait_for_stream(Wait* wait, Stream& stream);
  Wait* new_wait();
  void part_done(Wait* wait, Instant completion);
  void finish_wait(Wait* wait);
  bool open_slot(Actor& actor, std::uint32_t slot, const wire::Record& record);
  bool claim_slot(Actor& actor, std::uint32_t slot, const wire::Record& record);
  void answer(Actor& actor, std::uint32_t slot, wire::Status status, Instant resume, std::uint64_t value);
  void answer_driving(Actor& actor, std::uint32_t slot, Instant resume, std::uint64_t value);

  // ---- collectives.cpp
  void on_collective(Actor& actor, const wire::Record& record, Stream& stream, Instant issue);
  Unit* new_unit();
  Instance* instance_for(Communicator& comm, std::uint32_t member, const wire::CollectiveOp& op);
  void reach(Unit& unit, Stream& stream, Instant at);
  void arrive(Unit& unit);
  void start_instance(Instance& instance);
  void end_instance(Instance& instance, Instant end);
  void finish_unit(Unit& unit);
  void release_ended();
  Duration cost_of(Communicator& comm, Instance& instance, cost::Cost* cost);
  bool agrees(const Instance& instance);

  // ---- requests.cpp
  bool take_requests();
  void execute(const RequestPtr& request);
  bool execute_at_once(const RequestPtr& request);
  void attach_child(const RequestPtr& request);
  void comm_init(const RequestPtr& request);
  void comm_split(const RequestPtr& request);
  std::uint32_t add_comm(std::string label, std::vector<Actor*> members);
  Communicator* comm_of(std::uint32_t id);
  void malformed_request(const RequestPtr& request, const std::string& why);

  // ---- stuck.cpp
  void look_when_stuck();
  bool holders_idle(const std::vector<Actor*>& holders);
  void force(const std::vector<Actor*>& holders);
  void release_holders(const std::vector<Actor*>& holders, Instant at);
  void hang();
  void fire_timers(Instant at);
  Json describe_hang();
  Json describe_instance(const Communicator& comm, const Instance& instance);
  void ask_for_stacks();
  Json describe_ranks();

  // ---- live.cpp
  void upkeep();
  void show_ranks(std::uint64_t now);
  void show_waiting();
  void show_details();

  // ---- outcome.cpp
  void on_mark(Actor& actor, const wire::Record& record);
  void on_memory(Actor& actor, const wire::Record& record);
  void on_exit(Actor& actor, const wire::Record& record);
  void process_ended(std::uint32_t actor, std::uint32_t pid);
  void begin_step(Actor& actor, Instant h);
  void mark_step_end(Actor& actor, Instant h);
  void emit_steps();
  void end_run(const std::string& verdict, const std::string& message);
  void answer_everyone();
  void fail_actor(Actor& actor, const std::string& why);
  bool everyone_gone();
  void leave(Actor& actor);
  void write_report();
  Json report_json();
  Json steps_json();
  Json step_times_json();
  double cost_spread() const;
  // A byte count that ranks keep in the segment, where a script may write anything: never above what the GPU has.
  std::uint64_t device_bytes(const std::atomic<std::uint64_t>& count) const {
    return std::min(count.load(std::memory_order_relaxed), header_.gpu.total_bytes);
  }
  Json memory_json();
  Json kernels_json(bool unknown, std::size_t most = 50);
  Json traffic_json();
  Json costs_json();

  const Config& config_;
  Segment& segment_;
  Server& server_;
  const wire::RunHeader& header_;  // constants, a copy of our own
  wire::RunHeader& shared_;        // its atomics, which ranks see
  const Duration latency_;
  Names names_;
  std::unique_ptr<Costs> costs_;
  OpTable shapes_;
  OpLog log_;
  Timeline timeline_;
  Breakdown breakdown_;  // of rank 0
  std::size_t breakdown_flush_at_ = 4096;
  EventStream events_;
  Stores stores_;
  Locks locks_;
  Broker broker_;
  HostMessages host_messages_;
  ProcessWatch processes_;

  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<Actor*> active_;  // expected or live, by index
  std::vector<Stream*> unsettled_, dirty_;
  std::vector<std::unique_ptr<Communicator>> comms_{1};  // by id; 0 stands for none
  Instant global_ = 0;
  Instant least_ = 0;  // least bound, kept while events are processed
  std::uint64_t late_ops_ = 0, records_ = 0, forced_ = 0, unblocks_ = 0;
  std::multiset<Instant> moving_since_;  // starts of what has begun and is not in the log yet
  std::vector<Instance*> ended_;         // but a unit of theirs goes on
  std::vector<Unit*> done_units_;
  std::unordered_map<const Unit*, std::unique_ptr<Unit>> units_;
  std::unordered_map<const Wait*, std::unique_ptr<Wait>> waits_;
  std::map<std::uint32_t, std::uint32_t> children_of_rank_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> open_slots_;  // actor, wait slot: to be answered
  std::set<RequestPtr> open_requests_;
  std::vector<std::pair<Instant, std::pair<RequestPtr, std::function<void()>>>> helper_deadlines_;

  // comm init and split in progress
  struct Gathering {
    std::uint32_t expected = 0;
    Instant latest = 0;
    std::string label;
    std::map<std::uint32_t, RequestPtr> requests;  // by member
    std::map<std::uint32_t, std::pair<std::int32_t, std::int32_t>> colors;
  };
  std::map<std::string, Gathering> inits_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Gathering> splits_;
  std::map<std::pair<std::uint32_t, Actor*>, std::uint64_t> split_counts_;

  // stuck
  bool started_ = false;
  std::uint64_t quiet_since_ = 0, next_look_ = 0, look_pause_ns_ = 0, doorbell_sleep_ns_ = 0, last_activity_ = 0;
  std::uint32_t idle_looks_ = 0;
  std::uint32_t busy_pid_ = 0;       // a process that ran at the last look
  std::uint64_t outside_since_ = 0;  // nothing but ranks blocked outside, 0: not so
  std::uint64_t clock_sum_ = 0;

  // outcome
  bool ending_ = false;
  std::uint64_t ending_since_ = 0, next_rank_event_ = 0;
  std::uint64_t started_at_ = 0, last_upkeep_ = 0, last_ranks_ = 0, last_slow_ = 0, last_details_ = 0;  // real
  std::uint64_t kernels_at_ = 0;                                                                        // records
  bool details_moved_ = false;
  std::string verdict_ = "ok", message_ = "all ranks ended";
  Json hang_, mismatch_, oom_marks_;
  std::uint64_t oom_count_ = 0;
  std::uint64_t gone_since_ = 0;
  std::vector<std::string> notes_;
  std::set<std::string> noted_;
  std::map<std::uint32_t, std::string> stacks_;
  struct Step {
    Instant begin = 0, end = 0;
    Shares shares;
  };
  std::vector<Step> steps_;
  std::uint64_t boundary_ = 0;             // ids of snapshots, from 1
  std::map<std::uint64_t, Instant> ends_;  // snapshots that are known
  std::uint64_t candidate_ = 0;            // snapshot of the last optimizer step since a backward; 0 none
  std::vector<std::uint64_t> closed_;      // snapshots that end a step, in order
  std::size_t emitted_ = 0;
  std::uint64_t step_zero_ = 0;
  struct Traffic {
    std::uint64_t calls = 0, bytes = 0;
    Duration time = 0;
  };
  std::map<std::uint64_t, Traffic> traffic_;  // of rank 0, by traffic_key()
  static std::uint64_t traffic_key(std::uint32_t comm, wire::CollectiveKind kind) {
    return static_cast<std::uint64_t>(comm) << 8 | static_cast<std::uint64_t>(kind);
  }
  Duration busy_by_source_[cost::kSourceCount] = {};
  __uint128_t spread_weight_ = 0;  // of communication: ns times parts per million, so that no order of adding matters
};

}  // namespace phantora::core
