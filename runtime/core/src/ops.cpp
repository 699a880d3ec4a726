#include "ops.hpp"

#include <algorithm>
#include <cstring>

#include "config.hpp"

namespace phantora::core {
namespace {

using wire::RecordType;

std::uint64_t hash_shape(RecordType type, const std::array<std::uint64_t, kShapeWords>& words) {
  std::uint64_t sum = static_cast<std::uint64_t>(type) * 0x9e3779b97f4a7c15ULL;
  for (std::uint64_t word : words) {
    sum = (sum ^ word) * 0xff51afd7ed558ccdULL;
    sum ^= sum >> 32;
  }
  return sum;
}

// Ranks do not promise to clear padding, so each type is rebuilt from its fields.
std::array<std::uint64_t, kShapeWords> canonical_words(const wire::Record& record) {
  std::array<std::uint64_t, kShapeWords> words{};
  switch (record.type) {
    case RecordType::kKernel:
      std::memcpy(words.data(), record.words, sizeof(wire::KernelOp));
      break;
    case RecordType::kGemm:
      std::memcpy(words.data(), record.words, sizeof(wire::GemmOp));
      break;
    case RecordType::kMemcpy:
    case RecordType::kMemset:
      words[0] = record.copy.bytes;
      words[1] = static_cast<std::uint64_t>(record.copy.kind) | static_cast<std::uint64_t>(record.copy.pinned) << 8 |
                 static_cast<std::uint64_t>(record.copy.peer_device) << 16;
      break;
    case RecordType::kCollective: {
      const auto& op = record.collective;
      words[0] = op.comm | static_cast<std::uint64_t>(static_cast<std::uint32_t>(op.peer)) << 32;
      words[1] = static_cast<std::uint64_t>(op.kind) | static_cast<std::uint64_t>(op.type) << 8 |
                 static_cast<std::uint64_t>(op.reduction) << 16;
      words[2] = op.count;
      words[3] = op.bytes;
      break;
    }
    case RecordType::kMark:
      words[0] = static_cast<std::uint64_t>(record.mark.kind);
      words[1] = record.mark.value;
      words[2] = record.mark.text;
      break;
    case RecordType::kHostWork:
      words[0] = record.host_work.duration_ns;
      words[1] = record.host_work.text;
      break;
    case RecordType::kSleep:
      break;  // start and end say it all
    case RecordType::kExit:
      words[0] = static_cast<std::uint32_t>(record.exit.status);
      break;
    default:
      break;  // event records and stream waits: events are handles, the log names the op that recorded them
  }
  return words;
}

cost::Cost cost_of(Costs& costs, const wire::Record& record) {
  switch (record.type) {
    case RecordType::kKernel:
      return costs.kernel(record.kernel);
    case RecordType::kGemm:
      return costs.gemm(record.gemm);
    case RecordType::kMemcpy:
      return costs.copy(record.copy);
    case RecordType::kMemset:
      return costs.memset(record.copy.bytes);
    default:
      return {0, cost::Source::kUnknown, 0.0};
  }
}

cost::Cost exactly(std::uint64_t ns) {
  return {std::clamp<std::uint64_t>(ns, 1, kLatest / 2), cost::Source::kMeasured, 0.0};
}

class UnitCosts final : public Costs {
 public:
  cost::Cost kernel(const wire::KernelOp& op) override { return exactly(op.elements); }
  cost::Cost gemm(const wire::GemmOp& op) override {
    return exactly(static_cast<std::uint64_t>(op.m) * op.n * op.k * std::max(1U, op.batch));
  }
  cost::Cost copy(const wire::CopyOp& op) override { return exactly(op.bytes); }
  cost::Cost memset(std::uint64_t bytes) override { return exactly(bytes); }
  cost::Cost collective(const wire::CollectiveOp& op, const std::vector<std::uint32_t>&, std::uint32_t) override {
    return exactly(op.bytes);
  }
};

class ModelCosts final : public Costs {
 public:
  ModelCosts(const Config& config, const Names& names) : model_(config), names_(names) {}
  cost::Cost kernel(const wire::KernelOp& op) override {
    return bounded(model_.kernel(op, names_.get(op.name), names_.get(op.op)));
  }
  cost::Cost gemm(const wire::GemmOp& op) override { return bounded(model_.gemm(op)); }
  cost::Cost copy(const wire::CopyOp& op) override { return bounded(model_.copy(op)); }
  cost::Cost memset(std::uint64_t bytes) override { return bounded(model_.memset(bytes)); }
  cost::Cost collective(const wire::CollectiveOp& op, const std::vector<std::uint32_t>& ranks,
                        std::uint32_t self) override {
    return bounded(model_.collective(op, ranks, self));
  }

 private:
  // Hostile sizes must not overflow the clock.
  static cost::Cost bounded(cost::Cost cost) {
    cost.duration_ns = std::clamp<std::uint64_t>(cost.duration_ns, 1, kLatest / 2);
    return cost;
  }

  cost::CostModel model_;
  const Names& names_;
};

}  // namespace

OpTable::OpTable(Costs& costs) : costs_(costs), slots_(1U << 12) { shapes_.reserve(1U << 11); }

std::uint32_t OpTable::intern(const wire::Record& record) {
  const auto words = canonical_words(record);
  std::size_t at = hash_shape(record.type, words) & (slots_.size() - 1);
  for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
    const OpShape& shape = shapes_[slots_[at] - 1];
    if (shape.type == record.type && shape.words == words) return slots_[at] - 1;
  }
  OpShape shape;
  shape.type = record.type;
  shape.words = words;
  shape.cost = cost_of(costs_, record);
  shapes_.push_back(shape);
  slots_[at] = static_cast<std::uint32_t>(shapes_.size());
  const auto index = static_cast<std::uint32_t>(shapes_.size() - 1);
  if (shapes_.size() * 2 > slots_.size()) grow();
  return index;
}

void OpTable::grow() {
  std::vector<std::uint32_t> bigger(slots_.size() * 2);
  for (std::uint32_t index = 0; index < shapes_.size(); ++index) {
    std::size_t at = hash_shape(shapes_[index].type, shapes_[index].words) & (bigger.size() - 1);
    while (bigger[at] != 0) at = (at + 1) & (bigger.size() - 1);
    bigger[at] = index + 1;
  }
  slots_.swap(bigger);
}

bool Names::add(std::uint64_t hash, const std::string& text) {
  if (wire::name_hash(text.c_str()) != hash) return false;
  names_.try_emplace(hash, text);
  return true;
}

const std::string& Names::get(std::uint64_t hash) const {
  static const std::string kNone;
  const auto at = names_.find(hash);
  return at == names_.end() ? kNone : at->second;
}

std::unique_ptr<Costs> make_costs(const Config& config, const Names& names) {
  const std::string kind = config.get("core.costs", "model");
  if (kind == "unit") return std::make_unique<UnitCosts>();
  if (kind == "model") return std::make_unique<ModelCosts>(config, names);
  throw ConfigError(config.origin() + ": `core.costs` must be model or unit, found `" + kind + "`");
}

}  // namespace phantora::core
