// One operator call as plain data, ready to be run later on the CPU over device bytes: its tensors are regions, its
// results are written where the CUDA operator put its own. Runs in program order with copies and collectives.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "op_info.hpp"
#include "region.hpp"

namespace phantora::adaptor {

// Tensors above this are not computed: neither read nor written by executed operators.
inline constexpr std::uint64_t kInputLimitBytes = 64 << 10;
inline constexpr std::uint64_t kOutputLimitBytes = 256 << 10;
// More contiguous pieces than this in one region, and its whole span is marked unknown.
inline constexpr std::size_t kPieceLimit = 1024;

struct Item {  // one tensor, or an undefined one
  bool device = false;
  Region region;
  at::Tensor host;  // a private copy of a CPU tensor
};

struct CallArgument {
  enum class Kind { kValue, kDevice, kGenerator, kTensor, kTensorList, kOptionalTensorList };
  Kind kind = Kind::kValue;
  c10::IValue value;
  std::vector<Item> items;
};

class Call {
 public:
  explicit Call(const OpInfo& info) : info_(info) {}

  // Copies what `inputs` hold. False when something cannot be handed to the CPU; the call is then of no use.
  bool capture(c10::ArrayRef<c10::IValue> inputs);
  // After the operator ran: where its results are (one list per return), the present shape of what it was told to
  // write, and the seed for its random numbers.
  void finish(std::vector<std::vector<Item>> results, const std::vector<Region>& written, Ranges ranges,
              std::uint64_t seed);

  // Where the inputs lie.
  Ranges reads() const;
  // Are the bytes of every input real? Only meaningful in program order.
  bool inputs_known() const;
  // Runs the operator; marks what it wrote known, or unknown when it could not run.
  void run();

  const std::vector<CallArgument>& arguments() const { return arguments_; }
  const Ranges& ranges() const { return ranges_; }

 private:
  bool execute();
  void execute_dropout() const;
  void store(const c10::IValue& value, const std::vector<Item>& items) const;

  const OpInfo& info_;
  std::vector<CallArgument> arguments_;
  std::vector<std::vector<Item>> results_;
  Ranges ranges_;  // everything the operator writes
  std::uint64_t seed_ = 0;
};

}  // namespace phantora::adaptor
