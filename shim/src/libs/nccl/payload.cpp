// What becomes of the bytes of a collective (DESIGN 4).
//
// Payloads of at most kPayloadLimit really move. A contributor posts, in its program order, which of its bytes are
// known and those bytes; a receiver asks the core for the contributions at once, and its result is written when all
// have come and its turn is there. Known data gives known results: a reduction's element is known when it is in all
// contributions, a part of a gather when its sender's is. Who posts and who fetches:
//   all_reduce, all_gather, reduce_scatter, all_to_all   everybody posts to all; everybody fetches all
//   reduce, gather                                       everybody posts to all; the root fetches all
//   broadcast, scatter                                   the root posts to all; the others fetch the root's
//   send / recv                                          the sender posts to the receiver, who fetches it
// Larger payloads, and of floating point numbers more than kGatheredLimit over all ranks, in the receiver, become
// unknown, but for the part that is the receiver's own.
//
// Alone in its communicator, and in null mode, a rank works on its own bytes only. In null mode that is what NCCL
// without peers would leave: sums are the rank's own addend, gathers hold its own part, the parts of others are
// unknown.
#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/values.hpp"
#include "libs/async_core.hpp"
#include "libs/nccl/comm.hpp"
#include "libs/nccl/reduce.hpp"
#include "libs/values.hpp"
#include "message.hpp"

namespace phantora::libs::nccl {
namespace {

using wire::CollectiveKind;

// ---- contributions ------------------------------------------------------------------------------------------

// Known parts and their bytes: u32 number of parts, each (u32 offset, u32 length), then the bytes.
std::vector<std::byte> pack(const std::byte* bytes, const std::vector<cuda::KnownPart>& parts) {
  client::Body body;
  body.u32(static_cast<std::uint32_t>(parts.size()));
  std::size_t total = 0;
  for (const cuda::KnownPart& part : parts) {
    body.u32(static_cast<std::uint32_t>(part.offset)).u32(static_cast<std::uint32_t>(part.bytes));
    total += part.bytes;
  }
  std::vector<std::byte> packed(body.span().begin(), body.span().end());
  packed.reserve(packed.size() + total);
  for (const cuda::KnownPart& part : parts)
    packed.insert(packed.end(), bytes + part.offset, bytes + part.offset + part.bytes);
  return packed;
}

// One rank's contribution, spread out again: bytes (zero where unknown) and the known parts.
struct Contribution {
  std::vector<std::byte> bytes;
  std::vector<cuda::KnownPart> parts;
};

bool unpack(std::span<const std::byte> packed, std::size_t bytes, Contribution& result) {
  client::Reader reader(packed);
  const std::uint32_t count = reader.u32();
  result.bytes.assign(bytes, std::byte{});
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const std::uint64_t offset = reader.u32(), length = reader.u32();
    if (offset + length > bytes) return false;
    result.parts.push_back({offset, length});
  }
  if (!reader.ok()) return false;
  std::size_t at = sizeof(std::uint32_t) * (1 + 2 * static_cast<std::size_t>(count));
  for (const cuda::KnownPart& part : result.parts) {
    if (at + part.bytes > packed.size()) return false;
    std::memcpy(result.bytes.data() + part.offset, packed.data() + at, part.bytes);
    at += part.bytes;
  }
  return true;
}

// The reduction's factor (PreMulSum): applied by each rank to what it puts in. Empty: none; unknown: `known` false.
std::vector<std::byte> factor(const Operation& operation, bool& known) {
  known = true;
  if (operation.reduction < abi::kNcclOpCount) return {};
  const PreMultiply& op = operation.comm->operators[static_cast<std::size_t>(operation.reduction - abi::kNcclOpCount)];
  const std::size_t bytes = bytes_of(operation.type);
  const void* source = op.device_value != nullptr ? op.device_value : op.value;
  if (op.device_value != nullptr) known = cuda::is_known(source, bytes);
  const auto* first = static_cast<const std::byte*>(source);
  return {first, first + bytes};
}

Reduction reduction_of(const Operation& operation) {
  switch (operation.reduction) {
    case abi::kNcclProd:
      return Reduction::kProd;
    case abi::kNcclMax:
      return Reduction::kMax;
    case abi::kNcclMin:
      return Reduction::kMin;
    case abi::kNcclAvg:
      return Reduction::kAvg;
    default:
      return Reduction::kSum;
  }
}

Contribution own_contribution(const Operation& operation, std::size_t bytes) {
  Contribution result;
  const auto* source = static_cast<const std::byte*>(operation.send);
  bool factor_known = true;
  const std::vector<std::byte> scalar = factor(operation, factor_known);
  result.bytes.assign(bytes, std::byte{});
  if (!factor_known) return result;
  result.parts = cuda::known_parts(source, bytes);
  for (const cuda::KnownPart& part : result.parts)
    std::memcpy(result.bytes.data() + part.offset, source + part.offset, part.bytes);
  if (!scalar.empty()) scale(operation.type, result.bytes.data(), bytes / scalar.size(), scalar.data());
  return result;
}

// ---- results ------------------------------------------------------------------------------------------------

// The bytes [from, from + bytes) of a contribution become the device bytes at `target`.
void place(const Contribution& contribution, std::size_t from, std::size_t bytes, std::byte* target) {
  cuda::mark_unknown(target, bytes);
  for (const cuda::KnownPart& part : contribution.parts) {
    const std::size_t first = std::max<std::size_t>(part.offset, from);
    const std::size_t last = std::min<std::size_t>(part.offset + part.bytes, from + bytes);
    if (first >= last) continue;
    std::memcpy(target + (first - from), contribution.bytes.data() + first, last - first);
    cuda::mark_known(target + (first - from), last - first);
  }
}

// Elements [from, from + count) reduced over all contributions; known where all know them.
void place_reduced(const Operation& operation, const std::vector<Contribution>& all, std::size_t from,
                   std::byte* target) {
  const std::size_t element = bytes_of(operation.type), bytes = operation.part_bytes();
  std::vector<const std::byte*> sources;
  std::vector<std::uint32_t> votes(operation.count + 1, 0);  // differences: how many ranks know element i
  for (const Contribution& one : all) {
    sources.push_back(one.bytes.data() + from);
    for (const cuda::KnownPart& part : one.parts) {
      const std::size_t first = std::max<std::size_t>(part.offset, from),
                        last = std::min<std::size_t>(part.offset + part.bytes, from + bytes);
      if (first >= last) continue;
      const std::size_t begin = (first - from + element - 1) / element, end = (last - from) / element;
      if (begin >= end) continue;
      ++votes[begin];
      --votes[end];
    }
  }
  Contribution result;
  result.bytes.resize(bytes);
  reduce(operation.type, reduction_of(operation), sources, operation.count, result.bytes.data());
  std::uint32_t known_by = 0;
  for (std::size_t i = 0; i < operation.count; ++i) {
    known_by += votes[i];
    if (known_by != all.size()) continue;
    if (!result.parts.empty() && result.parts.back().offset + result.parts.back().bytes == i * element) {
      result.parts.back().bytes += element;
    } else {
      result.parts.push_back({i * element, element});
    }
  }
  place(result, 0, bytes, target);
}

// Writes the receive buffer from the contributions, one a member in order of rank (or the one that was asked for).
void place_result(const Operation& operation, const std::vector<Contribution>& all) {
  auto* target = static_cast<std::byte*>(operation.receive);
  const std::size_t part = operation.part_bytes();
  const auto rank = static_cast<std::size_t>(operation.comm->rank);
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return place_reduced(operation, all, 0, target);
    case CollectiveKind::kReduceScatter:
      return place_reduced(operation, all, rank * part, target);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      for (std::size_t r = 0; r < all.size(); ++r) place(all[r], 0, part, target + r * part);
      return;
    case CollectiveKind::kAllToAll:
      for (std::size_t r = 0; r < all.size(); ++r) place(all[r], rank * part, part, target + r * part);
      return;
    case CollectiveKind::kScatter:
      return place(all[0], rank * part, part, target);
    default:
      return place(all[0], 0, part, target);  // broadcast, recv
  }
}

// ---- between ranks ------------------------------------------------------------------------------------------

std::uint8_t number(CollectiveKind kind) { return static_cast<std::uint8_t>(kind); }

void complain_once() {
  client::note("failure", "a small NCCL payload could not be exchanged through the core; its receivers read zeros");
}

bool post(void* context) {
  const auto& operation = *static_cast<const Operation*>(context);
  const std::size_t bytes = operation.send_bytes();
  const Contribution own = own_contribution(operation, bytes);
  const std::vector<std::byte> packed = pack(own.bytes.data(), own.parts);
  client::Body body;
  body.u32(operation.comm->id)
      .u64(operation.sequence)
      .i32(operation.kind == CollectiveKind::kSend ? operation.peer : -1);
  body.u8(number(operation.kind)).blob(packed.data(), packed.size());
  async_core::start(
      wire::MessageType::kPost, body.span(),
      [](void*, wire::Status status, std::vector<std::byte>&&) {
        if (status != wire::Status::kOk && status != wire::Status::kEnding) complain_once();
      },
      nullptr);
  return true;
}

// Shared by the action in the queue and the request in flight; the last of the two frees it.
struct Fetch {
  Operation operation;
  std::size_t contribution_bytes;
  std::size_t expected;
  std::vector<Contribution> all;
  std::atomic<int> owners{2};
  std::atomic<bool> ready{false};

  static void release(Fetch* fetch) {
    if (fetch->owners.fetch_sub(1) == 1) delete fetch;
  }
};

void fetched(void* context, wire::Status status, std::vector<std::byte>&& reply) {
  auto* fetch = static_cast<Fetch*>(context);
  client::Reader reader(reply);
  const std::uint32_t count = status == wire::Status::kOk ? reader.u32() : 0;
  bool right = count == fetch->expected;
  for (std::uint32_t i = 0; right && i < count; ++i) {
    Contribution one;
    right = unpack(reader.blob(), fetch->contribution_bytes, one) && reader.ok();
    fetch->all.push_back(std::move(one));
  }
  if (!right) {
    fetch->all.clear();
    if (status != wire::Status::kEnding && status != wire::Status::kAborted) complain_once();
  }
  fetch->ready.store(true, std::memory_order_release);
  values::arrived();
  Fetch::release(fetch);
}

bool write_fetched(void* context) {
  auto* fetch = static_cast<Fetch*>(context);
  if (!fetch->ready.load(std::memory_order_acquire)) return false;
  if (fetch->all.empty()) {
    cuda::mark_unknown(fetch->operation.receive, fetch->operation.receive_bytes());
  } else {
    place_result(fetch->operation, fetch->all);
  }
  return true;
}

void fetch(const Operation& operation, int peer) {
  auto* pending = new Fetch;
  pending->operation = operation;
  const bool one = peer >= 0;
  pending->expected = one ? 1 : static_cast<std::size_t>(operation.comm->ranks);
  pending->contribution_bytes = operation.send_bytes();
  client::Body body;
  body.u32(operation.comm->id).u64(operation.sequence).i32(peer).u8(number(operation.kind));
  async_core::start(wire::MessageType::kFetch, body.span(), fetched, pending);
  values::Access access;
  access.writes[0] = values::range(operation.receive, operation.receive_bytes());
  values::run(write_fetched, [](void* context) { Fetch::release(static_cast<Fetch*>(context)); }, pending, access);
}

// ---- a rank's own bytes -------------------------------------------------------------------------------------

std::byte* at(void* pointer, std::size_t offset) { return static_cast<std::byte*>(pointer) + offset; }
const std::byte* at(const void* pointer, std::size_t offset) { return static_cast<const std::byte*>(pointer) + offset; }

// The result of a communicator of one rank, or what null mode leaves: own part in place, others unknown.
void place_own(const Operation& operation) {
  const std::size_t part = operation.part_bytes();
  const auto rank = static_cast<std::size_t>(operation.comm->rank),
             ranks = static_cast<std::size_t>(operation.comm->ranks);
  if (!operation.receives_data()) return;
  switch (operation.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
    case CollectiveKind::kAllToAll: {
      const std::size_t from = operation.kind == CollectiveKind::kAllToAll ? rank * part : 0;
      mark_unknown(operation.receive, rank * part);
      mark_unknown(at(operation.receive, (rank + 1) * part), (ranks - rank - 1) * part);
      return copy_on_device(at(operation.receive, rank * part), at(operation.send, from), part);
    }
    case CollectiveKind::kReduceScatter:
      return copy_on_device(operation.receive, at(operation.send, rank * part), part);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      if (!operation.contributes()) return mark_unknown(operation.receive, part);
      return copy_on_device(operation.receive,
                            at(operation.send, operation.kind == CollectiveKind::kScatter ? rank * part : 0), part);
    case CollectiveKind::kRecv:
      return mark_unknown(operation.receive, part);
    default:
      return copy_on_device(operation.receive, operation.send, part);  // all_reduce, reduce
  }
}

// Own part with a factor, or known sends to oneself: small enough to be done by the rules for many ranks.
bool alone_factor(void* context) {
  const auto& operation = *static_cast<const Operation*>(context);
  std::vector<Contribution> all;
  all.push_back(own_contribution(operation, operation.send_bytes()));
  place_result(operation, all);
  return true;
}

// A large collective: nothing moves, but what is the rank's own stays.
void forget_result(const Operation& operation) {
  if (!operation.receives_data()) return;
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kRecv:
      return mark_unknown(operation.receive, operation.receive_bytes());
    default:
      return place_own(operation);
  }
}

bool is_integer(wire::DataType type) {
  switch (type) {
    case wire::DataType::kInt8:
    case wire::DataType::kUint8:
    case wire::DataType::kInt16:
    case wire::DataType::kInt32:
    case wire::DataType::kUint32:
    case wire::DataType::kInt64:
    case wire::DataType::kUint64:
    case wire::DataType::kBool:
      return true;
    default:
      return false;
  }
}

bool is_gathered(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll ||
         kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather;
}

bool small(const Operation& operation) {
  if (operation.send_bytes() > kPayloadLimit) return false;
  if (is_integer(operation.type) || !is_gathered(operation.kind)) return true;
  return operation.send_bytes() * static_cast<std::size_t>(operation.comm->ranks) <= kGatheredLimit;
}

bool alone(const Operation& operation) { return client::null_mode() || operation.comm->ranks == 1; }

values::Access access_of(const Operation& operation, bool writes) {
  values::Access access;
  access.reads[0] = values::range(operation.send, operation.send_bytes());
  if (operation.reduction >= abi::kNcclOpCount) {
    const PreMultiply& op =
        operation.comm->operators[static_cast<std::size_t>(operation.reduction - abi::kNcclOpCount)];
    if (op.device_value != nullptr) access.reads[1] = values::range(op.device_value, bytes_of(operation.type));
  }
  if (writes) access.writes[0] = values::range(operation.receive, operation.receive_bytes());
  return access;
}

void destroy(void* context) { delete static_cast<Operation*>(context); }

}  // namespace

void start_payload(const Operation& operation) {
  // A rank's send to itself is posted like any other, so that its own receive finds it.
  const bool to_self = operation.kind == CollectiveKind::kSend && !client::null_mode();
  if (!small(operation) || !operation.contributes() || (alone(operation) && !to_self)) return;
  values::run(post, destroy, new Operation(operation), access_of(operation, false));
}

void finish_payload(const Operation& operation) {
  if (!operation.comm->sized || operation.kind == CollectiveKind::kSend) return;
  if (operation.kind == CollectiveKind::kRecv && !client::null_mode())
    return small(operation) ? fetch(operation, operation.peer) : forget_result(operation);
  if (alone(operation)) {
    const bool scaled = operation.reduction >= abi::kNcclOpCount && operation.comm->ranks == 1;
    if (!scaled) return place_own(operation);
    if (!small(operation)) return mark_unknown(operation.receive, operation.receive_bytes());
    return values::run(alone_factor, destroy, new Operation(operation), access_of(operation, true));
  }
  if (!small(operation)) return forget_result(operation);
  if (!operation.receives_data()) return;
  const bool from_root = operation.kind == CollectiveKind::kBroadcast || operation.kind == CollectiveKind::kScatter;
  if (!from_root) return fetch(operation, -1);
  if (operation.contributes()) return place_own(operation);  // the root's own part needs no exchange
  fetch(operation, operation.peer);
}

}  // namespace phantora::libs::nccl
