// The heaps that exist once per process, the engine and the hardened one, under random work of many
// threads: each thread allocates, fills, checks and frees blocks of all sizes, passes some to other
// threads to free, and ends. Its successor may adopt its heap. At the end all memory must be free
// again.
//
//    stress-engine, stress-secure [OPERATIONS [SEED [PROFILE]]]
//
// CMake chooses the heap: TS_STRESSED_HEAP is its type, and TS_STRESSED_HEADER declares it.
#include TS_STRESSED_HEADER

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "base/bits.h"
#include "os/options.h"
#include "stress/post_office.h"

namespace ts::stress {
namespace {

using Heap = TS_STRESSED_HEAP;
constinit Heap heap;

struct Parcel {
  unsigned char* begin;
  std::size_t bytes;
};

constexpr std::size_t boxes = 128;
// Blocks of at least this size are grown and allocated with zeros more often: only their pages are
// moved or assumed clean, and there are few such blocks.
constexpr std::size_t large_bytes = 256 << 10;
constexpr std::size_t most_bytes = 16 << 20;

[[noreturn]] void fail(const char* what, const void* where) {
  std::fprintf(stderr, "stress: %s at %p\n", what, where);
  std::abort();
}
void expect(bool holds, const char* what, const void* where = nullptr) {
  if (!holds) fail(what, where);
}

// The contents of a block, derived from its address and length.
unsigned char pattern(const Parcel& parcel) {
  return static_cast<unsigned char>(mix(address_of(parcel.begin) + parcel.bytes) >> 56);
}

// The beginning and the end; the middle of a large block stays untouched.
void fill(const Parcel& parcel) {
  const std::size_t edge = parcel.bytes < 256 ? parcel.bytes : 256;
  std::memset(parcel.begin, pattern(parcel), edge);
  std::memset(parcel.begin + parcel.bytes - edge, pattern(parcel), edge);
}
// Each byte has the value if the first has it and each equals the next: a sanitizer checks that
// call much faster than a loop's reads.
void expect_all(const unsigned char* begin, std::size_t bytes, unsigned char value,
                const char* what) {
  if (bytes == 0 || (*begin == value && std::memcmp(begin, begin + 1, bytes - 1) == 0)) return;
  while (*begin == value) ++begin;
  fail(what, begin);
}

// Whether a block, which may have moved, has the contents it was filled with.
void check(const Parcel& filled, const unsigned char* begin, const char* what) {
  const std::size_t edge = filled.bytes < 256 ? filled.bytes : 256;
  expect_all(begin, edge, pattern(filled), what);
  expect_all(begin + filled.bytes - edge, edge, pattern(filled), what);
}
void check(const Parcel& filled) { check(filled, filled.begin, "a block was overwritten"); }

Parcel filled_block(std::size_t bytes) {
  const Parcel parcel{static_cast<unsigned char*>(heap.allocate(bytes, 16)), bytes};
  expect(parcel.begin != nullptr, "no memory");
  fill(parcel);
  return parcel;
}

void check_and_release(const Parcel& parcel) {
  check(parcel);
  heap.release(parcel.begin);
}

class Worker {
 public:
  Worker(PostOffice<Parcel>& office, std::uint64_t seed) : office_{office}, state_{seed} {}

  void run(unsigned operations) {
    for (unsigned i = 0; i < operations; ++i) step();
    for (const Parcel& parcel : live_) check_and_release(parcel);
  }

 private:
  std::size_t random(std::size_t limit) { return mix(++state_) % limit; }

  std::size_t random_bytes() {
    switch (random(64)) {
      case 0:
        return random(random(32) == 0 ? most_bytes : 2 << 20);
      case 1:
        return random(80'000);
      case 2:
      case 3:
        return random(20'000);
      default:
        return random(600);
    }
  }

  void step() {
    const std::size_t what = random(16);
    if (live_.empty() || (what < 8 && live_.size() < 400)) return allocate();
    std::swap(live_[random(live_.size())], live_.back());
    if (what < 10) return resize(live_.back());
    const Parcel parcel = live_.back();
    live_.pop_back();
    Parcel other;
    if (what < 13 && office_.post(random(boxes), parcel)) {
      if (office_.take(random(boxes), other)) check_and_release(other);
    } else {
      check_and_release(parcel);
    }
  }

  void allocate() {
    const std::size_t bytes = random_bytes();
    const std::size_t alignment = random(16) == 0 ? std::size_t{16} << random(12) : 16;
    const bool zeroed = alignment == 16 && random(bytes < large_bytes ? 8 : 2) == 0;
    auto* const begin = static_cast<unsigned char*>(zeroed ? heap.allocate_zeroed(bytes)
                                                           : heap.allocate(bytes, alignment));
    expect(begin != nullptr, "no memory");
    expect(address_of(begin) % alignment == 0, "a block is misaligned", begin);
    expect(Heap::usable_size(begin) >= bytes, "a block is too short", begin);
    if (zeroed) expect_all(begin, bytes, 0, "a block is not zero");
    live_.push_back({begin, bytes});
    fill(live_.back());
  }

  void resize(Parcel& parcel) {
    check(parcel);
    const bool grows = random(parcel.bytes < large_bytes ? 4 : 2) == 0;
    const std::size_t bytes = grows && parcel.bytes < most_bytes
                                  ? parcel.bytes + random(parcel.bytes + 1)
                                  : random_bytes();
    if (!heap.resize(parcel.begin, bytes)) {
      auto* const moved = static_cast<unsigned char*>(heap.move(parcel.begin, bytes));
      if (moved == nullptr) return;
      expect(bytes > parcel.bytes, "a block moved that would have fitted", moved);
      check(parcel, moved, "a moved block has lost its contents");
      parcel.begin = moved;
    }
    expect(Heap::usable_size(parcel.begin) >= bytes, "a resized block is too short", parcel.begin);
    parcel.bytes = bytes;
    fill(parcel);
  }

  PostOffice<Parcel>& office_;
  std::uint64_t state_;
  std::vector<Parcel> live_;
};

// One thread allocates; another, which never has a heap, frees. Every block goes through the remote
// bits, and the owner works on a slab while other blocks of it return.
void stream(unsigned blocks, std::size_t max_bytes) {
  PostOffice<Parcel> office{1024};
  std::thread consumer{[&office, blocks] {
    for (unsigned i = 0; i < blocks; ++i) {
      Parcel parcel;
      while (!office.take(i % office.boxes(), parcel)) std::this_thread::yield();
      check_and_release(parcel);
    }
  }};
  for (unsigned i = 0; i < blocks; ++i) {
    const Parcel parcel = filled_block(1 + mix(i) % max_bytes);
    while (!office.post(i % office.boxes(), parcel)) std::this_thread::yield();
  }
  consumer.join();
}

// Each thread frees all that another allocated, megabytes of it, while that thread waits or uses
// blocks of its own, so whole slabs are freed under it.
void hand_over(unsigned rounds) {
  constexpr unsigned threads = 4;
  constexpr std::size_t load_bytes = 3 << 20;
  std::vector<Parcel> loads[threads];
  std::barrier all{threads};
  const auto run = [&](unsigned number) {
    std::vector<Parcel> own;
    for (unsigned round = 0; round < rounds; ++round) {
      std::uint64_t state = std::uint64_t{round} * threads + number;
      const auto some_bytes = [&state] {
        const std::uint64_t r = mix(++state);
        return 1 + r % (r >> 32 & 3 ? 4000 : 300);
      };
      std::vector<Parcel>& load = loads[number];
      for (std::size_t bytes = 0; bytes < load_bytes; bytes += load.back().bytes)
        load.push_back(filled_block(some_bytes()));
      all.arrive_and_wait();
      std::vector<Parcel>& other = loads[(number + 1) % threads];
      const bool waits = (number + round) % 2 == 0;
      std::size_t freed = 0;
      for (const Parcel& parcel : other) {
        check_and_release(parcel);
        if (waits || ++freed % 4 != 0) continue;
        own.push_back(filled_block(some_bytes()));
        if (own.size() < 200) continue;
        for (const Parcel& block : own) check_and_release(block);
        own.clear();
      }
      other.clear();
      all.arrive_and_wait();
    }
    for (const Parcel& block : own) check_and_release(block);
  };
  std::vector<std::thread> running;
  for (unsigned number = 0; number < threads; ++number) running.emplace_back(run, number);
  for (std::thread& thread : running) thread.join();
  expect(heap.is_valid(), "the heap is not sound");
}

void set(const char* name, const char* value) {
  expect(set_option(name, value), "an option is refused", name);
  [](auto& any) {
    if constexpr (requires { any.follow_options(); }) any.follow_options();
  }(heap);
}

// The value of the option PROFILE while nothing changes it.
const char* usual_profile = "off";

// Changes options while threads work, during the object's life.
class ChangingOptions {
 public:
  explicit ChangingOptions(std::uint64_t seed)
      : thread_{[this, seed] {
          for (std::uint64_t i = seed; !is_over_.load(); ++i) change(mix(i));
        }} {}
  ~ChangingOptions() {
    is_over_.store(true);
    thread_.join();
    for (const auto& [name, values] : options) set(name, values[0]);
    set("PROFILE", usual_profile);
  }
  ChangingOptions(const ChangingOptions&) = delete;
  ChangingOptions& operator=(const ChangingOptions&) = delete;

 private:
  struct Option {
    const char* name;
    const char* values[4];  // the default first
  };
  static constexpr Option options[] = {{"BACKGROUND", {"auto", "off", "on", "off"}},
                                       {"LIMIT", {"auto", "1M", "40M", "off"}},
                                       {"HARD_LIMIT", {"off", "64G", "100%", "off"}},
                                       {"THP", {"auto", "never", "always", "auto"}},
                                       {"PROFILE", {"off", "64", "auto", "64K"}}};

  static void change(std::uint64_t random) {
    const auto& [name, values] = options[random % std::size(options)];
    set(name, values[random / 64 % std::size(values)]);
    std::this_thread::sleep_for(std::chrono::microseconds{random / 4096 % 2000});
  }

  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

bool count_used(const BlockView& block, void* count) {
  *static_cast<std::size_t*>(count) += block.state == BlockState::used ? 1 : 0;
  return true;
}

void run(unsigned generations, unsigned threads, unsigned operations, std::uint64_t seed) {
  PostOffice<Parcel> office{boxes};
  seed *= std::uint64_t{generations} * threads;  // each worker has its own
  for (unsigned generation = 0; generation < generations; ++generation) {
    std::optional<ChangingOptions> changing;
    if (generation % 2 == 1) changing.emplace(seed);
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
      running.emplace_back([&office, operations, begin = ++seed << 32] {
        Worker{office, begin}.run(operations);
      });
    }
    for (std::thread& thread : running) thread.join();
    changing.reset();
    expect(heap.is_valid(), "the heap is not sound");
  }
  stream(20 * operations, 240);
  stream(20 * operations, 1);
  hand_over(operations / 150);
  Parcel parcel;
  for (std::size_t box = 0; box < boxes; ++box) {
    if (office.take(box, parcel)) heap.release(parcel.begin);
  }
  heap.trim(0);
  std::size_t used = 0;
  heap.walk(count_used, &used);
  expect(used == 0, "blocks did not come home");
  // Including the main thread's, and the one for samples.
  expect(heap.measures().heaps <= threads + 2, "heaps of ended threads were not taken over");
  // While the heap's own thread purges OS pages under free blocks, these count as used.
  const auto is_home = [] {
    const HeapMeasures now = heap.measures();
    return now.free_bytes == now.segment_bytes;
  };
  for (int tries = 0; tries < 500 && !is_home(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  expect(is_home(), "memory did not come home");
  expect(heap.is_valid(), "the heap is not sound");
}

}  // namespace
}  // namespace ts::stress

int main(int argc, char** argv) {
  const unsigned operations = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 20'000;
  const std::uint64_t seed = argc > 2 ? static_cast<std::uint64_t>(std::atoll(argv[2])) : 1;
  if (argc > 3) ts::stress::usual_profile = argv[3];
  ts::stress::set("PROFILE", ts::stress::usual_profile);
  ts::current_options.background = ts::Background::automatic;  // the engine's background thread
  ts::stress::run(5, 6, operations, seed);
  std::puts("sound");
}
