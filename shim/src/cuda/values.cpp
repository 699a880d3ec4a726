#include "cuda/values.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda/memory.hpp"
#include "cuda/regions.hpp"
#include "phantora/adaptor_api.h"

namespace phantora::cuda {
namespace {

constexpr std::uint64_t kDropRun = 16 * kPage;  // from here dropping pages is cheaper than writing zeros

void zero(std::uintptr_t address, std::uint64_t bytes) {
  if (bytes >= kDropRun && address % kPage == 0 && bytes % kPage == 0) {
    madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
  } else {
    std::memset(reinterpret_cast<void*>(address), 0, bytes);
  }
}

// The first byte from `from` on, below `end`, whose bit is `value`; `end` when there is none.
std::uint64_t next(const ByteSet& set, std::uint64_t from, std::uint64_t end, bool value) {
  while (from < end) {
    std::uint64_t word = value ? set[from / 64] : ~set[from / 64];
    word &= ~0ULL << (from % 64);
    if (word != 0) return std::min(end, from / 64 * 64 + static_cast<std::uint64_t>(__builtin_ctzll(word)));
    from = (from / 64 + 1) * 64;
  }
  return end;
}

// Sets or clears the bits [first, last).
void assign(ByteSet& set, std::uint64_t first, std::uint64_t last, bool value) {
  while (first < last) {
    const std::uint64_t word = first / 64;
    const std::uint64_t low = first % 64;
    const std::uint64_t high = std::min<std::uint64_t>(64, last - word * 64);
    const std::uint64_t mask = (high == 64 ? ~0ULL : (1ULL << high) - 1) & ~((1ULL << low) - 1);
    set[word] = value ? set[word] | mask : set[word] & ~mask;
    first = (word + 1) * 64;
  }
}

bool all_equal(const ByteSet& set, std::uint64_t first, std::uint64_t last, bool value) {
  return next(set, first, last, !value) == last;
}

struct Range {
  Region* region;
  std::uint64_t first, last;  // offsets in the region
};

// Cut to the region; a range never spans two.
bool range_of(const void* pointer, std::size_t bytes, Range& range) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Region* region = region_of(address);
  if (region == nullptr || bytes == 0) return false;
  range = {region, address - region->base, std::min<std::uint64_t>(address - region->base + bytes, region->bytes)};
  return true;
}

void refresh_granule(Region& region, std::uint64_t granule) {
  std::uint64_t any = 0;
  const std::uint8_t* pages = region.pages + granule * kPagesPerGranule;
  for (std::uint64_t i = 0; i < kPagesPerGranule; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, pages + i, 8);
    any |= word;
  }
  __atomic_store_n(&region.granules[granule], any != 0 ? 1 : 0, __ATOMIC_RELAXED);
}

// The first or last page of a range, of which only [first, last) is meant.
void forget_part(Region& region, std::uint64_t page, std::uint64_t first, std::uint64_t last) {
  std::uint8_t& state = region.pages[page];
  if (state == 0) return;
  if ((state & kDirty) != 0) std::memset(reinterpret_cast<void*>(region.base + page * kPage + first), 0, last - first);
  if ((state & (kKnown | kMixed)) == 0) return;
  auto& set = region.mixed[page];
  if (set == nullptr) {
    set = std::make_unique<ByteSet>();
    set->fill(~0ULL);
  }
  // An empty set stays: small tensors come back to the same page at once.
  assign(*set, first, last, false);
  state = static_cast<std::uint8_t>((state & kDirty) | kMixed);
}

void learn_part(Region& region, std::uint64_t page, std::uint64_t first, std::uint64_t last, std::uint8_t dirty) {
  std::uint8_t& state = region.pages[page];
  state |= dirty;
  if ((state & kKnown) != 0) return;
  auto& set = region.mixed[page];
  if (set == nullptr) {
    set = std::make_unique<ByteSet>();
    set->fill(0);
  }
  assign(*set, first, last, true);
  state |= kMixed;
  if (all_equal(*set, 0, kPage, true)) {
    region.mixed.erase(page);
    state = static_cast<std::uint8_t>((state & kDirty) | kKnown);
  }
}

void forget_pages(Region& region, std::uint64_t first, std::uint64_t last) {
  std::uint64_t run = first;  // start of the current run of dirty pages
  for (std::uint64_t page = first; page <= last; ++page) {
    const bool dirty = page < last && (region.pages[page] & kDirty) != 0;
    if (!dirty) {
      if (page > run) zero(region.base + run * kPage, (page - run) * kPage);
      run = page + 1;
    }
  }
  for (std::uint64_t page = first; page < last; ++page) {
    if ((region.pages[page] & kMixed) != 0) region.mixed.erase(page);
  }
  std::memset(region.pages + first, 0, last - first);
}

struct Run {
  std::uint64_t offset, bytes;  // relative to the range
  bool dirty;
};

// What is known of a range, as runs in order.
std::vector<Run> known_runs(const Range& range) {
  std::vector<Run> runs;
  Region& region = *range.region;
  auto add = [&](std::uint64_t first, std::uint64_t last, bool dirty) {
    const std::uint64_t offset = first - range.first;
    if (!runs.empty() && runs.back().offset + runs.back().bytes == offset && runs.back().dirty == dirty) {
      runs.back().bytes += last - first;
    } else {
      runs.push_back({offset, last - first, dirty});
    }
  };
  std::lock_guard lock(region.mutex);
  for (std::uint64_t at = range.first; at < range.last;) {
    if (region.granules[at / kGranule] == 0) {
      at = (at / kGranule + 1) * kGranule;
      continue;
    }
    const std::uint64_t page = at / kPage;
    const std::uint64_t end = std::min((page + 1) * kPage, range.last);
    const std::uint8_t state = region.pages[page];
    if ((state & kKnown) != 0) {
      add(at, end, (state & kDirty) != 0);
    } else if ((state & kMixed) != 0) {
      const ByteSet& set = *region.mixed[page];
      const std::uint64_t start = page * kPage;
      for (std::uint64_t byte = next(set, at - start, end - start, true); byte < end - start;) {
        const std::uint64_t stop = next(set, byte, end - start, false);
        add(start + byte, start + stop, (state & kDirty) != 0);
        byte = next(set, stop, end - start, true);
      }
    }
    at = end;
  }
  return runs;
}

}  // namespace

void mark_unknown(void* pointer, std::size_t bytes) {
  Range range;
  if (!range_of(pointer, bytes, range)) return;
  Region& region = *range.region;
  const std::uint64_t first_granule = range.first / kGranule;
  const std::uint64_t last_granule = (range.last - 1) / kGranule;
  std::uint64_t granule = first_granule;
  while (granule <= last_granule && __atomic_load_n(&region.granules[granule], __ATOMIC_RELAXED) == 0) ++granule;
  if (granule > last_granule) return;  // the common case: a big tensor in which nothing was ever known
  std::lock_guard lock(region.mutex);
  for (; granule <= last_granule; ++granule) {
    if (region.granules[granule] == 0) continue;
    const std::uint64_t first = std::max(range.first, granule * kGranule);
    const std::uint64_t last = std::min(range.last, (granule + 1) * kGranule);
    std::uint64_t first_page = first / kPage;
    std::uint64_t last_page = last / kPage;
    if (first % kPage != 0) {
      forget_part(region, first_page, first % kPage, first_page == last_page ? last % kPage : kPage);
      ++first_page;
    }
    if (last % kPage != 0 && last_page >= first_page) forget_part(region, last_page, 0, last % kPage);
    if (first_page < last_page) forget_pages(region, first_page, last_page);
    refresh_granule(region, granule);
  }
}

void mark_known(void* pointer, std::size_t bytes, bool zero_content) {
  Range range;
  if (!range_of(pointer, bytes, range)) return;
  Region& region = *range.region;
  const std::uint8_t dirty = zero_content ? 0 : kDirty;
  std::lock_guard lock(region.mutex);
  for (std::uint64_t granule = range.first / kGranule; granule <= (range.last - 1) / kGranule; ++granule) {
    __atomic_store_n(&region.granules[granule], 1, __ATOMIC_RELAXED);
  }
  for (std::uint64_t at = range.first; at < range.last;) {
    const std::uint64_t page = at / kPage;
    if (at % kGranule == 0 && range.last - at >= kGranule && region.mixed.empty()) {
      std::uint8_t* states = region.pages + page;
      for (std::uint64_t i = 0; i < kPagesPerGranule; ++i) states[i] = (states[i] & kDirty) | kKnown | dirty;
      at += kGranule;
      continue;
    }
    const std::uint64_t end = std::min((page + 1) * kPage, range.last);
    if (end - at == kPage) {
      if ((region.pages[page] & kMixed) != 0) region.mixed.erase(page);
      region.pages[page] = static_cast<std::uint8_t>((region.pages[page] & kDirty) | kKnown | dirty);
    } else {
      learn_part(region, page, at % kPage, end - page * kPage, dirty);
    }
    at = end;
  }
}

bool is_known(const void* pointer, std::size_t bytes) {
  Range range;
  if (!range_of(pointer, bytes, range)) return true;  // host memory, or nothing
  Region& region = *range.region;
  for (std::uint64_t granule = range.first / kGranule; granule <= (range.last - 1) / kGranule; ++granule) {
    if (__atomic_load_n(&region.granules[granule], __ATOMIC_RELAXED) == 0) return false;
  }
  std::lock_guard lock(region.mutex);
  for (std::uint64_t at = range.first; at < range.last;) {
    const std::uint64_t page = at / kPage;
    const std::uint64_t end = std::min((page + 1) * kPage, range.last);
    const std::uint8_t state = region.pages[page];
    if ((state & kMixed) != 0) {
      if (!all_equal(*region.mixed[page], at % kPage, end - page * kPage, true)) return false;
    } else if ((state & kKnown) == 0) {
      return false;
    }
    at = end;
  }
  return true;
}

std::vector<KnownPart> known_parts(const void* pointer, std::size_t bytes) {
  std::vector<KnownPart> parts;
  Range range;
  if (!range_of(pointer, bytes, range)) {
    if (bytes != 0) parts.push_back({0, bytes});  // host memory
    return parts;
  }
  for (const Run& run : known_runs(range)) {
    if (!parts.empty() && parts.back().offset + parts.back().bytes == run.offset) {
      parts.back().bytes += run.bytes;
    } else {
      parts.push_back({run.offset, run.bytes});
    }
  }
  return parts;
}

void copy_known(void* target, const void* source, std::size_t bytes) {
  Range range;
  if (!range_of(source, bytes, range)) {
    mark_unknown(target, bytes);
    return;
  }
  const std::vector<Run> runs = known_runs(range);
  const auto* from = static_cast<const char*>(source);
  auto* to = static_cast<char*>(target);
  // The bytes are taken aside first: the target is cleared before it is written, and the two may overlap.
  std::uint64_t total = 0;
  for (const Run& run : runs) total += run.dirty ? run.bytes : 0;
  std::vector<char> content(total);
  std::uint64_t filled = 0;
  for (const Run& run : runs) {
    if (!run.dirty) continue;
    std::memcpy(content.data() + filled, from + run.offset, run.bytes);
    filled += run.bytes;
  }
  mark_unknown(target, bytes);
  filled = 0;
  for (const Run& run : runs) {
    if (run.dirty) {
      std::memcpy(to + run.offset, content.data() + filled, run.bytes);
      filled += run.bytes;
    }
    mark_known(to + run.offset, run.bytes, !run.dirty);
  }
}

void read_device(void* target, const void* source, std::size_t bytes) {
  if (bytes <= kCopyLimit) {
    std::memcpy(target, source, bytes);
    return;
  }
  Range range;
  std::memset(target, 0, bytes);
  if (!range_of(source, bytes, range)) return;
  for (const Run& run : known_runs(range)) {
    if (run.dirty)
      std::memcpy(static_cast<char*>(target) + run.offset, static_cast<const char*>(source) + run.offset, run.bytes);
  }
}

void write_device(void* target, const void* source, std::size_t bytes) {
  if (bytes <= kCopyLimit) {
    std::memcpy(target, source, bytes);
    mark_known(target, bytes);
  } else {
    mark_unknown(target, bytes);
  }
}

void fill_device(void* target, std::uint32_t pattern, unsigned pattern_bytes, std::size_t bytes) {
  if (bytes > kCopyLimit) {
    mark_unknown(target, bytes);
    if (pattern == 0) mark_known(target, bytes, true);
    return;
  }
  auto* to = static_cast<char*>(target);
  if (pattern_bytes == 1 || pattern == 0) {
    std::memset(to, static_cast<int>(pattern & 0xff), bytes);
    mark_known(target, bytes);
    return;
  }
  for (std::size_t at = 0; at < bytes; at += pattern_bytes) {
    std::memcpy(to + at, &pattern, std::min<std::size_t>(pattern_bytes, bytes - at));
  }
  mark_known(target, bytes);
}

}  // namespace phantora::cuda

extern "C" {

int phantora_is_device_pointer(const void* pointer) { return phantora::cuda::device_address(pointer) ? 1 : 0; }
void phantora_mark_unknown(void* pointer, size_t bytes) { phantora::cuda::mark_unknown(pointer, bytes); }
void phantora_mark_known(void* pointer, size_t bytes) { phantora::cuda::mark_known(pointer, bytes); }
int phantora_is_known(const void* pointer, size_t bytes) { return phantora::cuda::is_known(pointer, bytes) ? 1 : 0; }

}  // extern "C"
