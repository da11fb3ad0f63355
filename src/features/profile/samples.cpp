#include "features/profile/samples.h"

#include <bit>
#include <cstring>

#include "base/exponential.h"
#include "core/hooks.h"
#include "core/racy_read.h"
#include "core/remote_frees.h"
#include "features/profile/probes.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// ---- room ----

// In total; beyond it, samples are dropped, and counted.
constexpr std::size_t max_row_bytes = std::size_t{16} << 20;
constexpr std::size_t max_sample_bytes = std::size_t{16} << 20;
constexpr std::size_t max_stack_bytes = std::size_t{32} << 20;
constexpr std::size_t commit_bytes = std::size_t{64} << 10;

template <class T>
bool open(Growing<T>& array, std::size_t most_bytes) noexcept {
  if (array.items == nullptr) array.items = static_cast<T*>(os::reserve(most_bytes));
  return array.items != nullptr;
}

// Appends `count` items; null if there is no room.
template <class T>
T* add_items(Growing<T>& array, std::uint32_t more, std::size_t most_bytes) noexcept {
  const std::size_t needed = (std::size_t{array.count} + more) * sizeof(T);
  std::size_t committed = align_up(array.committed * sizeof(T), commit_bytes);
  while (committed < needed) {
    if (committed + commit_bytes > most_bytes ||
        !os::commit(reinterpret_cast<std::byte*>(array.items) + committed, commit_bytes))
      return nullptr;
    committed += commit_bytes;
    array.committed = static_cast<std::uint32_t>(committed / sizeof(T));
  }
  T* const first = array.items + array.count;
  array.count += more;
  return first;
}

// ---- hashes ----

std::uint64_t mix(std::uint64_t hash, std::uint64_t number) noexcept {
  hash = (hash ^ number) * 0x9e37'79b9'7f4a'7c15;
  return hash ^ hash >> 29;
}

std::uint64_t hash_of_block(const void* p) noexcept { return mix(0, address_of(p)) >> 8; }
std::uint64_t hash_of_sample(std::uint32_t number) noexcept TS_NO_ANALYSIS {
  return hash_of_block(samples.in_use.items[number].block);
}

std::uint64_t hash_of_row(std::uint32_t stack, std::uint64_t size_class,
                          std::uint64_t interval) noexcept {
  return mix(mix(mix(0, stack), size_class), interval) >> 8;
}
std::uint64_t hash_of_row(std::uint32_t number) noexcept TS_NO_ANALYSIS {
  const SampleRow& row = samples.rows.items[number];
  return hash_of_row(row.stack, row.size_class, row.interval);
}

std::uint32_t hash_of(const os::UnwoundStack& stack) noexcept {
  std::uint64_t hash = stack.is_whole ? 1 : 0;
  for (std::uint32_t i = 0; i < stack.depth; ++i) hash = mix(hash, stack.frames[i]);
  return static_cast<std::uint32_t>(hash >> 8);
}
const StackHeader& header_of(std::uint32_t stack) noexcept TS_NO_ANALYSIS {
  return *reinterpret_cast<const StackHeader*>(samples.stacks.items + stack);
}
std::uint64_t hash_of_stack(std::uint32_t stack) noexcept { return header_of(stack).hash; }

// ---- rows ----

// Tells readers in other processes that the samples are changing, like a sequence lock.
class Change {
 public:
  Change() noexcept TS_REQUIRES(samples_lock) { count(std::memory_order_acquire); }
  ~Change() TS_NO_ANALYSIS { count(std::memory_order_release); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  static void count(std::memory_order order) noexcept TS_NO_ANALYSIS {
    samples.changes.fetch_add(1, order);  // ordered with the stores between the two
  }
};

// Not memcmp(), which another library may have replaced: the caller holds a lock.
bool are_same(const std::uintptr_t* frames, const os::UnwoundStack& stack) noexcept {
  for (unsigned i = 0; i < stack.depth; ++i) {
    if (frames[i] != stack.frames[i]) return false;
  }
  return true;
}

std::uint32_t stack_number(const os::UnwoundStack& stack) noexcept TS_REQUIRES(samples_lock) {
  const std::uint32_t hash = hash_of(stack);
  const auto is_same = [&](std::uint32_t number) {
    const StackHeader& header = header_of(number);
    return header.hash == hash && header.depth == stack.depth &&
           header.is_whole == (stack.is_whole ? 1 : 0) &&
           are_same(reinterpret_cast<const std::uintptr_t*>(&header + 1), stack);
  };
  const std::uint32_t found = find_number(samples.stack_index, hash, is_same);
  if (found != no_number) return found;
  if (!reserve_number(samples.stack_index, hash_of_stack)) return no_number;
  std::uint64_t* const words = add_items(samples.stacks, 1 + stack.depth, max_stack_bytes);
  if (words == nullptr) return no_number;
  const StackHeader header{hash, static_cast<std::uint16_t>(stack.depth),
                           static_cast<std::uint16_t>(stack.is_whole ? 1 : 0)};
  std::memcpy(words, &header, sizeof header);
  std::memcpy(words + 1, stack.frames, stack.depth * sizeof(std::uint64_t));
  const auto number = static_cast<std::uint32_t>(words - samples.stacks.items);
  put_number(samples.stack_index, hash, number);
  ++samples.stack_index.used;
  return number;
}

// The largest block of its row class. Blocks of slabs are exact; large ones are grouped into
// eighths of an octave.
std::uint64_t row_class_of(std::size_t block_bytes) noexcept {
  return block_bytes <= max_small_bytes ? block_bytes
                                        : align_up(block_bytes, std::bit_floor(block_bytes) / 8);
}

SampleRow* row_of(std::uint32_t stack, std::size_t block_bytes, std::uint64_t interval) noexcept
    TS_REQUIRES(samples_lock) {
  const std::uint64_t size_class = row_class_of(block_bytes);
  const std::uint64_t hash = hash_of_row(stack, size_class, interval);
  const std::uint32_t found =
      find_number(samples.row_index, hash, [&](std::uint32_t number) TS_NO_ANALYSIS {
        const SampleRow& row = samples.rows.items[number];
        return row.stack == stack && row.size_class == size_class && row.interval == interval;
      });
  if (found != no_number) return samples.rows.items + found;
  if (!reserve_number(samples.row_index, [](std::uint32_t n) { return hash_of_row(n); }))
    return nullptr;
  SampleRow* const row = add_items(samples.rows, 1, max_row_bytes);
  if (row == nullptr) return nullptr;
  *row = {};
  row->stack = stack;
  row->size_class = size_class;
  row->interval = interval;
  put_number(samples.row_index, hash, static_cast<std::uint32_t>(row - samples.rows.items));
  ++samples.row_index.used;
  return row;
}

// How many blocks a sample of the row represents.
double weight_of(SampleRow& row, std::size_t block_bytes) noexcept {
  if (row.weighed_bytes != block_bytes) {
    row.weighed_bytes = block_bytes;
    row.weight = 1 / probability_within(static_cast<double>(block_bytes) /
                                        static_cast<double>(row.interval));
  }
  return row.weight;
}

// The peak is updated when live bytes exceed the last one by a 32nd.
void look_at_peak() noexcept TS_REQUIRES(samples_lock) {
  constexpr double step = 1.0 / 32;
  if (samples.live_bytes <= samples.peak_bytes * (1 + step)) return;
  samples.peak_bytes = samples.live_bytes;
  samples.peak_ms = os::coarse_milliseconds();
  for (std::uint32_t i = 0; i < samples.rows.count; ++i)
    samples.rows.items[i].at_peak = samples.rows.items[i].in_use;
}

std::uint32_t find_sample(const void* p) noexcept TS_REQUIRES(samples_lock) {
  return find_number(samples.sample_index, hash_of_block(p), [p](std::uint32_t n) TS_NO_ANALYSIS {
    return samples.in_use.items[n].block == p;
  });
}

void subtract(const Sample& sample) noexcept TS_REQUIRES(samples_lock) {
  SampleRow& row = samples.rows.items[sample.row];
  const double blocks = weight_of(row, sample.block_bytes);
  const double bytes = blocks * static_cast<double>(sample.requested_bytes);
  row.born_ms -= sample.born_ms;
  if (sample.placeholder != nullptr) samples.placeholder_bytes -= sample.block_bytes;
  samples.live_bytes -= bytes;
  if (--row.in_use.samples == 0) {
    row.in_use = {};  // clears rounding errors
  } else {
    row.in_use.blocks -= blocks;
    row.in_use.bytes -= bytes;
  }
}

// Fills the gap with the last sample.
void remove(std::uint32_t number) noexcept TS_REQUIRES(samples_lock) {
  const Change change;
  Sample& sample = samples.in_use.items[number];
  subtract(sample);
  remove_number(samples.sample_index, hash_of_block(sample.block), number, hash_of_sample);
  const std::uint32_t last = --samples.in_use.count;
  if (number == last) return;
  const Sample moved = samples.in_use.items[last];
  remove_number(samples.sample_index, hash_of_block(moved.block), last, hash_of_sample);
  sample = moved;
  put_number(samples.sample_index, hash_of_block(moved.block), number);
  ++samples.sample_index.used;
}

}  // namespace

bool open_samples() noexcept {
  if (samples.began_ms == 0) samples.began_ms = os::coarse_milliseconds();
  return open(samples.rows, max_row_bytes) && open(samples.in_use, max_sample_bytes) &&
         open(samples.stacks, max_stack_bytes);
}

double note_sample(const void* block, std::size_t bytes, std::size_t block_bytes,
                   std::uint64_t interval, const os::UnwoundStack& stack,
                   void* placeholder) noexcept {
  const Change change;
  const std::uint32_t stack_at = stack_number(stack);
  SampleRow* const row = stack_at != no_number ? row_of(stack_at, block_bytes, interval) : nullptr;
  const bool has_room = row != nullptr && reserve_number(samples.sample_index, hash_of_sample);
  Sample* const sample = has_room ? add_items(samples.in_use, 1, max_sample_bytes) : nullptr;
  if (sample == nullptr) {
    ++samples.dropped;
    return 0;
  }
  const std::uint64_t now = os::coarse_milliseconds() - samples.began_ms;
  *sample = {block,
             bytes,
             block_bytes,
             static_cast<std::uint32_t>(row - samples.rows.items),
             static_cast<std::uint32_t>(now),
             placeholder};
  if (placeholder != nullptr) samples.placeholder_bytes += block_bytes;
  put_number(samples.sample_index, hash_of_block(block),
             static_cast<std::uint32_t>(sample - samples.in_use.items));
  ++samples.sample_index.used;
  const double blocks = weight_of(*row, block_bytes);
  row->requested_bytes += bytes;
  row->block_bytes += block_bytes;
  row->born_ms += now;
  for (Estimate* const sum : {&row->allocated, &row->in_use}) {
    ++sum->samples;
    sum->blocks += blocks;
    sum->bytes += blocks * static_cast<double>(bytes);
  }
  samples.live_bytes += blocks * static_cast<double>(bytes);
  look_at_peak();
  return blocks;
}

void take_stack(os::UnwoundStack& stack, const void* caller) noexcept {
  if (takes_stacks.load(std::memory_order_relaxed)) os::unwind(stack, caller);
}

void trace_alloc(const void* p, std::size_t bytes, double weight) noexcept {
  probe_alloc(p, bytes, static_cast<std::uint64_t>(weight * static_cast<double>(bytes)));
}

void forget_sample(const void* p) noexcept {
  std::uint32_t number = no_number;
  const void* placeholder = nullptr;
  {
    const Guard guard{samples_lock};
    number = find_sample(p);
    if (number == no_number) return;
    placeholder = samples.in_use.items[number].placeholder;
    remove(number);
  }
  // By its bit, whichever heap owns its slab: this thread's own may be about to end.
  if (placeholder != nullptr)
    release_remote_at_once(place_of(placeholder, size_class_of(entry_of(placeholder))),
                           FoundBy::a_later_call);
  probe_free(p);
}

std::size_t requested_bytes_of_sample(const void* p) noexcept {
  const Guard guard{samples_lock};
  const std::uint32_t number = find_sample(p);
  return number != no_number ? samples.in_use.items[number].requested_bytes : 0;
}

// Called without the lock.
std::size_t hooks::bytes_kept() noexcept TS_NO_ANALYSIS {
  return racy_read(samples.placeholder_bytes);
}

}  // namespace ts::engine
