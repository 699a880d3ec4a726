// phantora-cost CORE.CONF: answers cost questions from stdin, one a line, `key=value` words:
//   gemm m= n= k= [batch=] [type=bf16|fp16|fp8|fp32|tf32|fp64|int8] [out=<type>]   (cuBLAS's column-major m, n, k)
//   kernel name=<mangled> [grid=x,y,z] [block=x,y,z] [elements=] [op=<name>] [in=<bytes>] [out=<bytes>]
//   copy kind=h2d|d2h|d2d|peer|h2h bytes= [pinned=0|1]
//   memset bytes=
//   collective op=<all_reduce|...> count= [type=] ranks=<first>-<last>|<a>,<b>,... [peer=] [self=]
// Each answer: `<ns> <source> <spread>`; a wrong question: `error: ...`.
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "../../config.hpp"
#include "../cost.hpp"

namespace phantora::cost {
namespace {

using Words = std::map<std::string, std::string>;

std::uint64_t number(const Words& words, const std::string& key, std::uint64_t fallback) {
  const auto at = words.find(key);
  return at == words.end() ? fallback : std::stoull(at->second);
}

std::string text(const Words& words, const std::string& key, const std::string& fallback) {
  const auto at = words.find(key);
  return at == words.end() ? fallback : at->second;
}

wire::DataType type_of(const std::string& name) {
  static const std::map<std::string, wire::DataType> kTypes{
      {"bf16", wire::DataType::kBfloat16}, {"fp16", wire::DataType::kFloat16}, {"fp8", wire::DataType::kFp8E4M3},
      {"fp32", wire::DataType::kFloat32},  {"tf32", wire::DataType::kTf32},    {"fp64", wire::DataType::kFloat64},
      {"int8", wire::DataType::kInt8},     {"int64", wire::DataType::kInt64},  {"uint8", wire::DataType::kUint8}};
  const auto at = kTypes.find(name);
  if (at == kTypes.end()) throw std::runtime_error("unknown type `" + name + "`");
  return at->second;
}

void three(const std::string& list, std::uint32_t (&into)[3]) {
  std::istringstream words(list);
  std::string word;
  for (std::uint32_t& value : into)
    value = std::getline(words, word, ',') ? static_cast<std::uint32_t>(std::stoul(word)) : 1;
}

std::vector<std::uint32_t> ranks_of(const std::string& list) {
  std::vector<std::uint32_t> ranks;
  const auto dash = list.find('-');
  if (dash != std::string::npos) {
    for (unsigned long r = std::stoul(list.substr(0, dash)); r <= std::stoul(list.substr(dash + 1)); ++r) {
      ranks.push_back(static_cast<std::uint32_t>(r));
    }
    return ranks;
  }
  std::istringstream words(list);
  std::string word;
  while (std::getline(words, word, ',')) ranks.push_back(static_cast<std::uint32_t>(std::stoul(word)));
  return ranks;
}

Cost answer(CostModel& model, const std::string& question, const Words& words) {
  if (question == "gemm") {
    wire::GemmOp op{};
    op.m = static_cast<std::uint32_t>(number(words, "m", 1));
    op.n = static_cast<std::uint32_t>(number(words, "n", 1));
    op.k = static_cast<std::uint32_t>(number(words, "k", 1));
    op.batch = static_cast<std::uint32_t>(number(words, "batch", 1));
    const std::string type = text(words, "type", "bf16");
    op.type_a = op.type_b = type_of(type);
    op.type_c = type_of(text(words, "out", type == "fp8" ? "bf16" : type));
    op.compute = op.type_a == wire::DataType::kTf32 ? wire::DataType::kTf32 : wire::DataType::kFloat32;
    return model.gemm(op);
  }
  if (question == "kernel") {
    wire::KernelOp op{};
    const std::string name = text(words, "name", ""), op_name = text(words, "op", "");
    op.name = wire::name_hash(name.c_str());
    op.op = op_name.empty() ? 0 : wire::name_hash(op_name.c_str());
    three(text(words, "grid", "1,1,1"), op.grid);
    three(text(words, "block", "128,1,1"), op.block);
    op.elements = number(words, "elements", 0);
    op.op_input_bytes = number(words, "in", 0);
    op.op_output_bytes = number(words, "out", 0);
    return model.kernel(op, name, op_name);
  }
  if (question == "copy") {
    static const std::map<std::string, wire::CopyKind> kKinds{{"h2d", wire::CopyKind::kHostToDevice},
                                                              {"d2h", wire::CopyKind::kDeviceToHost},
                                                              {"d2d", wire::CopyKind::kDeviceToDevice},
                                                              {"peer", wire::CopyKind::kPeer},
                                                              {"h2h", wire::CopyKind::kHostToHost}};
    const auto at = kKinds.find(text(words, "kind", "h2d"));
    if (at == kKinds.end()) throw std::runtime_error("unknown kind of copy");
    wire::CopyOp op{};
    op.bytes = number(words, "bytes", 0);
    op.kind = at->second;
    op.pinned = static_cast<std::uint8_t>(number(words, "pinned", 0));
    return model.copy(op);
  }
  if (question == "memset") return model.memset(number(words, "bytes", 0));
  if (question == "collective") {
    using Kind = wire::CollectiveKind;
    static const std::map<std::string, Kind> kKinds{{"all_reduce", Kind::kAllReduce},
                                                    {"all_gather", Kind::kAllGather},
                                                    {"reduce_scatter", Kind::kReduceScatter},
                                                    {"broadcast", Kind::kBroadcast},
                                                    {"reduce", Kind::kReduce},
                                                    {"all_to_all", Kind::kAllToAll},
                                                    {"send", Kind::kSend},
                                                    {"recv", Kind::kRecv},
                                                    {"gather", Kind::kGather},
                                                    {"scatter", Kind::kScatter},
                                                    {"barrier", Kind::kBarrier}};
    const auto at = kKinds.find(text(words, "op", ""));
    if (at == kKinds.end()) throw std::runtime_error("unknown collective");
    wire::CollectiveOp op{};
    op.kind = at->second;
    op.type = type_of(text(words, "type", "uint8"));
    op.count = number(words, "count", 0);
    op.peer = static_cast<std::int32_t>(number(words, "peer", 0));
    return model.collective(op, ranks_of(text(words, "ranks", "0-7")),
                            static_cast<std::uint32_t>(number(words, "self", 0)));
  }
  throw std::runtime_error("unknown question `" + question + "`");
}

int run(const std::string& configuration) {
  CostModel model(core::Config::from_file(configuration));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream stream(line);
    std::string question, word;
    stream >> question;
    Words words;
    while (stream >> word) {
      const auto equals = word.find('=');
      words[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
    try {
      const Cost cost = answer(model, question, words);
      std::printf("%llu %s %.3f\n", static_cast<unsigned long long>(cost.duration_ns), source_name(cost.source),
                  cost.spread);
    } catch (const std::exception& error) {
      std::printf("error: %s\n", error.what());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace phantora::cost

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: phantora-cost CORE.CONF < questions\n");
    return 2;
  }
  try {
    return phantora::cost::run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "phantora-cost: %s\n", error.what());
    return 1;
  }
}
