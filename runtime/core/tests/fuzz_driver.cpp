// A driver for the fuzz targets where there is no libFuzzer: the same inputs for the same seed, random and mutated
// ones. Options: -runs=N, -max_total_time=SECONDS, -seed=N; file names: run those inputs.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::uint64_t state = 1;
std::uint64_t next() {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

std::vector<std::uint8_t> fresh() {
  std::vector<std::uint8_t> input(next() % 4096);
  const unsigned style = next() % 3;
  for (auto& byte : input)
    byte = static_cast<std::uint8_t>(style == 0 ? next() : style == 1 ? next() % 4 : (next() % 8 == 0 ? next() : 0));
  return input;
}

void mutate(std::vector<std::uint8_t>& input) {
  for (std::uint64_t times = 1 + next() % 8; times > 0 && !input.empty(); --times) {
    const std::size_t at = next() % input.size();
    switch (next() % 4) {
      case 0:
        input[at] = static_cast<std::uint8_t>(next());
        break;
      case 1:
        input[at] ^= static_cast<std::uint8_t>(1U << next() % 8);
        break;
      case 2: {  // repeat a part elsewhere
        const std::size_t length = std::min<std::size_t>(next() % 130, input.size() - at);
        const std::size_t to = next() % (input.size() - length + 1);
        std::memmove(&input[to], &input[at], length);
        break;
      }
      default:
        input.resize(1 + next() % input.size());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = ~0ULL, seconds = ~0ULL;
  bool files = false;
  for (int index = 1; index < argc; ++index) {
    const char* option = argv[index];
    if (std::strncmp(option, "-runs=", 6) == 0) {
      runs = std::strtoull(option + 6, nullptr, 10);
    } else if (std::strncmp(option, "-max_total_time=", 16) == 0) {
      seconds = std::strtoull(option + 16, nullptr, 10);
    } else if (std::strncmp(option, "-seed=", 6) == 0) {
      state = std::strtoull(option + 6, nullptr, 10) * 0x9e3779b97f4a7c15ULL + 1;
    } else {
      std::ifstream file(option, std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      files = true;
    }
  }
  if (files) return 0;
  if (runs == ~0ULL && seconds == ~0ULL) runs = 1000;

  const auto began = std::chrono::steady_clock::now();
  std::vector<std::vector<std::uint8_t>> pool;
  std::uint64_t done = 0;
  for (; done < runs; ++done) {
    if (std::chrono::steady_clock::now() - began > std::chrono::seconds(seconds == ~0ULL ? 1'000'000 : seconds)) break;
    std::vector<std::uint8_t> input;
    if (pool.empty() || next() % 4 == 0) {
      input = fresh();
      if (pool.size() < 256) {
        pool.push_back(input);
      } else {
        pool[next() % pool.size()] = input;
      }
    } else {
      input = pool[next() % pool.size()];
      mutate(input);
    }
    // Left behind when the input brings us down, so that it can be run again.
    if (std::FILE* file = std::fopen("fuzz-last-input", "wb")) {
      if (!input.empty()) std::fwrite(input.data(), 1, input.size(), file);
      std::fclose(file);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::remove("fuzz-last-input");
  std::printf("%llu inputs, all survived\n", static_cast<unsigned long long>(done));
  return 0;
}
