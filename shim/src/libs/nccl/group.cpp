// Groups: operations are collected until the outermost ncclGroupEnd; more than one share a group number, which the core
// starts and ends together.
#include <pthread.h>

#include <atomic>

#include "libs/nccl/comm.hpp"

namespace phantora::libs::nccl {
namespace {

struct Group {
  int depth = 0;
  int error = abi::kNcclSuccess;  // the first failure inside the group comes out of its end
  std::vector<Operation> operations;
  std::vector<Initialisation> initialisations;
};

Group& group() {
  static thread_local Group instance;
  return instance;
}

std::uint32_t next_group() {
  static std::atomic<std::uint32_t> counter{0};
  std::uint32_t number = 0;
  while (number == 0) number = counter.fetch_add(1) + 1;
  return number;
}

std::uint64_t next_sequence(const Operation& operation) {
  Comm& comm = *operation.comm;
  const auto peer = static_cast<std::size_t>(operation.peer);
  if (operation.kind == wire::CollectiveKind::kSend) return ++comm.sends[peer];
  if (operation.kind == wire::CollectiveKind::kRecv) return ++comm.receives[peer];
  return ++comm.collectives;
}

void record(const Operation& operation, std::uint32_t group, bool last) {
  wire::Record record{};
  record.type = wire::RecordType::kCollective;
  wire::CollectiveOp& op = record.collective;
  op.comm = operation.comm->id;
  op.peer = operation.peer;
  op.kind = operation.kind;
  op.type = operation.type;
  op.reduction =
      static_cast<std::uint8_t>(operation.reduction < abi::kNcclOpCount ? operation.reduction : abi::kNcclOpCount);
  op.group = group;
  op.group_last = last ? 1 : 0;
  op.count = operation.count;
  op.bytes = operation.send_bytes();
  op.sequence = operation.sequence;
  enqueue(operation.stream, client::CallKind::kCollective, record);
}

void run(std::vector<Operation>& operations) {
  for (Operation& operation : operations) operation.sequence = next_sequence(operation);
  if (!client::null_mode()) {
    const std::uint32_t number = operations.size() > 1 ? next_group() : 0;
    for (const Operation& operation : operations) record(operation, number, &operation == &operations.back());
  }
  // All contributions leave before anything is waited for: a rank may send to and receive from the same peer in one
  // group.
  for (const Operation& operation : operations) start_payload(operation);
  for (const Operation& operation : operations) finish_payload(operation);
}

struct Parallel {
  Initialisation* initialisation;
  int result;
};

// Members of one communicator may all be in this group (one process, many GPUs): each needs a thread, since each blocks
// until all are there.
int run(std::vector<Initialisation>& initialisations) {
  if (initialisations.size() == 1) return initialisations[0].run(initialisations[0]);
  std::vector<Parallel> all;
  for (Initialisation& one : initialisations) all.push_back({&one, abi::kNcclSystemError});
  std::vector<pthread_t> threads(all.size());
  std::vector<bool> started(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto body = [](void* context) -> void* {
      auto* one = static_cast<Parallel*>(context);
      client::ensure_driving();
      one->result = one->initialisation->run(*one->initialisation);
      return nullptr;
    };
    started[i] = pthread_create(&threads[i], nullptr, body, &all[i]) == 0;
  }
  int result = abi::kNcclSuccess;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (started[i]) pthread_join(threads[i], nullptr);
    if (all[i].result != abi::kNcclSuccess) result = all[i].result;
  }
  return result;
}

int fail(int error) {
  Group& current = group();
  if (current.depth > 0 && current.error == abi::kNcclSuccess) current.error = error;
  return error;
}

// Argument checks as NCCL makes them; an empty operation is none.
int check(const Operation& operation, bool& empty) {
  const Comm* comm = operation.comm;
  empty = false;
  if (comm == nullptr) {
    set_last_error("communicator is NULL or was destroyed");
    return abi::kNcclInvalidArgument;
  }
  if (comm->aborted || comm->finalized) {
    set_last_error("communicator was aborted or finalized");
    return abi::kNcclInvalidUsage;
  }
  if (operation.type == wire::DataType::kNone) {
    set_last_error("unknown data type");
    return abi::kNcclInvalidArgument;
  }
  const bool needs_peer =
      operation.kind == wire::CollectiveKind::kSend || operation.kind == wire::CollectiveKind::kRecv ||
      operation.kind == wire::CollectiveKind::kBroadcast || operation.kind == wire::CollectiveKind::kReduce ||
      operation.kind == wire::CollectiveKind::kGather || operation.kind == wire::CollectiveKind::kScatter;
  if (needs_peer && comm->sized && (operation.peer < 0 || operation.peer >= comm->ranks)) {
    set_last_error("root or peer " + std::to_string(operation.peer) + " is not in a communicator of " +
                   std::to_string(comm->ranks) + " ranks");
    return abi::kNcclInvalidArgument;
  }
  const int op = operation.reduction;
  const auto custom = static_cast<std::size_t>(op - abi::kNcclOpCount);
  if (op < 0 || (op >= abi::kNcclOpCount && (custom >= comm->operators.size() || !comm->operators[custom].alive))) {
    set_last_error("unknown reduction operation");
    return abi::kNcclInvalidArgument;
  }
  if (!valid_stream(operation.stream)) {
    set_last_error("invalid stream");
    return abi::kNcclInvalidArgument;
  }
  empty = operation.count == 0;
  return abi::kNcclSuccess;
}

}  // namespace

int submit(const Operation& operation) {
  bool empty = false;
  const int error = check(operation, empty);
  if (error != abi::kNcclSuccess) return fail(error);
  if (empty) return abi::kNcclSuccess;
  Group& current = group();
  if (current.depth > 0) {
    current.operations.push_back(operation);
    return abi::kNcclSuccess;
  }
  std::vector<Operation> one{operation};
  run(one);
  return abi::kNcclSuccess;
}

int submit(Initialisation initialisation) {
  Group& current = group();
  if (current.depth > 0) {
    current.initialisations.push_back(std::move(initialisation));
    return abi::kNcclSuccess;
  }
  std::vector<Initialisation> one;
  one.push_back(std::move(initialisation));
  return run(one);
}

}  // namespace phantora::libs::nccl

namespace abi = phantora::abi;
namespace nccl = phantora::libs::nccl;

PHANTORA_EXPORT int ncclGroupStart() {
  ++nccl::group().depth;
  return abi::kNcclSuccess;
}

PHANTORA_EXPORT int ncclGroupEnd() {
  nccl::Group& current = nccl::group();
  if (current.depth == 0) {
    nccl::set_last_error("ncclGroupEnd without ncclGroupStart");
    return abi::kNcclInvalidUsage;
  }
  if (--current.depth > 0) return abi::kNcclSuccess;
  std::vector<nccl::Operation> operations;
  std::vector<nccl::Initialisation> initialisations;
  operations.swap(current.operations);
  initialisations.swap(current.initialisations);
  int error = current.error;
  current.error = abi::kNcclSuccess;
  if (error != abi::kNcclSuccess) return error;
  if (!initialisations.empty()) error = nccl::run(initialisations);
  if (error != abi::kNcclSuccess) return error;
  if (!operations.empty()) nccl::run(operations);
  return abi::kNcclSuccess;
}
