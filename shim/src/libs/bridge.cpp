#include "libs/bridge.hpp"

#include "cuda/memory.hpp"
#include "cuda/state.hpp"
#include "cuda/streams.hpp"
#include "cuda/values.hpp"
#include "libs/values.hpp"

namespace phantora::libs {
namespace {

// One pending change of device bytes: `source` null means unknown.
struct Change {
  void* target;
  const void* source;
  std::uint64_t rows_bytes, columns, pitch;  // a block of columns, `pitch` apart

  void apply() const {
    if (source != nullptr) return cuda::copy_known(target, source, rows_bytes);
    for (std::uint64_t column = 0; column < columns; ++column)
      cuda::mark_unknown(static_cast<char*>(target) + column * pitch, rows_bytes);
  }
};

void change(const Change& wanted) {
  if (wanted.rows_bytes == 0 || wanted.columns == 0) return;
  if (!values::pending()) return wanted.apply();
  values::Access access;
  access.writes[0] = values::range(wanted.target, (wanted.columns - 1) * wanted.pitch + wanted.rows_bytes);
  if (wanted.source != nullptr) access.reads[0] = values::range(wanted.source, wanted.rows_bytes);
  values::run(
      [](void* context) {
        static_cast<const Change*>(context)->apply();
        return true;
      },
      [](void* context) { delete static_cast<Change*>(context); }, new Change(wanted), access);
}

// Marking column by column pays only where the gaps between few columns may hold known values.
constexpr std::uint64_t kColumnsOneByOne = 64;

}  // namespace

int current_device() { return cuda::current_ordinal(); }
int current_node_device() { return cuda::current_node_device(); }

bool valid_stream(void* stream) {
  cuda::StreamRef ref;
  return cuda::resolve_stream(stream, ref) == cuda::Status::kSuccess;
}

void enqueue(void* stream, client::CallKind kind, wire::Record& record) { cuda::enqueue(stream, kind, record); }
void wait(void* stream) { cuda::wait_stream(stream); }

bool take_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind) {
  return bytes == 0 || cuda::charge_memory(node_device, bytes, kind, bytes);
}
void give_memory(int node_device, std::uint64_t bytes, wire::MemoryKind kind) {
  if (bytes != 0) cuda::uncharge_memory(node_device, bytes, kind);
}

void mark_unknown(void* pointer, std::size_t bytes) { change({pointer, nullptr, bytes, 1, bytes}); }

void mark_unknown_matrix(void* pointer, std::uint64_t rows, std::uint64_t columns, std::uint64_t ld,
                         std::size_t element_bytes) {
  if (rows == 0 || columns == 0) return;
  const std::uint64_t row_bytes = rows * element_bytes, pitch = ld * element_bytes;
  if (ld > rows && columns <= kColumnsOneByOne) return change({pointer, nullptr, row_bytes, columns, pitch});
  mark_unknown(pointer, (columns - 1) * pitch + row_bytes);
}

void copy_on_device(void* target, const void* source, std::size_t bytes) {
  if (target != source) change({target, source, bytes, 1, bytes});
}

void unsupported(const char* call, const std::string& why) {
  client::note("unsupported", why.empty() ? std::string(call) : std::string(call) + ": " + why);
}

}  // namespace phantora::libs
