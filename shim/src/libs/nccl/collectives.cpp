// The data operations of NCCL: each fills an Operation; groups, records and bytes are done for all alike.
#include "libs/nccl/comm.hpp"

namespace abi = phantora::abi;
namespace nccl = phantora::libs::nccl;
using phantora::wire::CollectiveKind;

namespace phantora::libs::nccl {

std::size_t Operation::send_bytes() const {
  const bool all_parts =
      kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kScatter;
  return part_bytes() * static_cast<std::size_t>(all_parts ? comm->ranks : 1);
}

std::size_t Operation::receive_bytes() const {
  const bool all_parts =
      kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather;
  return part_bytes() * static_cast<std::size_t>(all_parts ? comm->ranks : 1);
}

bool Operation::contributes() const {
  switch (kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return comm->rank == peer;
    case CollectiveKind::kRecv:
      return false;
    default:
      return true;
  }
}

bool Operation::receives_data() const {
  switch (kind) {
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return comm->rank == peer;
    case CollectiveKind::kSend:
      return false;
    default:
      return true;
  }
}

}  // namespace phantora::libs::nccl

namespace {

int submit(CollectiveKind kind, const void* send, void* receive, std::size_t count, int type, int reduction, int peer,
           void* comm, void* stream) {
  nccl::Operation operation;
  operation.comm = nccl::from(comm);
  operation.kind = kind;
  operation.type = phantora::libs::from_nccl_type(type);
  operation.reduction = reduction;
  operation.peer = peer;
  operation.send = send;
  operation.receive = receive;
  operation.count = count;
  operation.stream = stream;
  return nccl::submit(operation);
}

}  // namespace

#define PHANTORA_COLLECTIVE(name, parameters, ...) \
  PHANTORA_EXPORT int name parameters { return submit(__VA_ARGS__); }

PHANTORA_COLLECTIVE(ncclAllReduce,
                    (const void* send, void* receive, std::size_t count, int type, int op, void* comm, void* stream),
                    CollectiveKind::kAllReduce, send, receive, count, type, op, -1, comm, stream)
PHANTORA_COLLECTIVE(ncclReduce,
                    (const void* send, void* receive, std::size_t count, int type, int op, int root, void* comm,
                     void* stream),
                    CollectiveKind::kReduce, send, receive, count, type, op, root, comm, stream)
PHANTORA_COLLECTIVE(ncclBroadcast,
                    (const void* send, void* receive, std::size_t count, int type, int root, void* comm, void* stream),
                    CollectiveKind::kBroadcast, send, receive, count, type, 0, root, comm, stream)
PHANTORA_COLLECTIVE(ncclBcast, (void* buffer, std::size_t count, int type, int root, void* comm, void* stream),
                    CollectiveKind::kBroadcast, buffer, buffer, count, type, 0, root, comm, stream)
PHANTORA_COLLECTIVE(ncclAllGather,
                    (const void* send, void* receive, std::size_t count, int type, void* comm, void* stream),
                    CollectiveKind::kAllGather, send, receive, count, type, 0, -1, comm, stream)
PHANTORA_COLLECTIVE(ncclReduceScatter,
                    (const void* send, void* receive, std::size_t count, int type, int op, void* comm, void* stream),
                    CollectiveKind::kReduceScatter, send, receive, count, type, op, -1, comm, stream)
PHANTORA_COLLECTIVE(ncclAlltoAll,
                    (const void* send, void* receive, std::size_t count, int type, void* comm, void* stream),
                    CollectiveKind::kAllToAll, send, receive, count, type, 0, -1, comm, stream)
PHANTORA_COLLECTIVE(ncclGather,
                    (const void* send, void* receive, std::size_t count, int type, int root, void* comm, void* stream),
                    CollectiveKind::kGather, send, receive, count, type, 0, root, comm, stream)
PHANTORA_COLLECTIVE(ncclScatter,
                    (const void* send, void* receive, std::size_t count, int type, int root, void* comm, void* stream),
                    CollectiveKind::kScatter, send, receive, count, type, 0, root, comm, stream)
PHANTORA_COLLECTIVE(ncclSend, (const void* send, std::size_t count, int type, int peer, void* comm, void* stream),
                    CollectiveKind::kSend, send, nullptr, count, type, 0, peer, comm, stream)
PHANTORA_COLLECTIVE(ncclRecv, (void* receive, std::size_t count, int type, int peer, void* comm, void* stream),
                    CollectiveKind::kRecv, nullptr, receive, count, type, 0, peer, comm, stream)
