// Interprets any bytes as a program with arenas: its threads enter scopes, allocate, free,
// reallocate, reset and destroy. The oracle knows each thread's scopes, the user of each arena and
// the owner of each block. So it knows the result of each call, the size of each arena, and which
// blocks are freed with it. All others must keep their contents.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "engine/engine.h"
#include "features/arenas/idle_arenas.h"
#include "fuzz/input.h"
#include "fuzz/seats.h"
#include "fuzz/shadow.h"
#include "fuzz/target.h"
#include "libc/libc_rules.h"
#include "os/options.h"

namespace ts::fuzz {
namespace {

using engine::ArenaHandle;

constinit LibcRules<engine::Engine> allocator;

struct Totals {
  std::size_t allocations = 0;
  std::size_t freed_with_arenas = 0;
  std::size_t foreign_frees = 0;
  std::size_t refused = 0;  // calls that answered EBUSY or EINVAL
  std::size_t most_scopes = 0;
};
Totals totals;

constexpr int none = -1;

struct Arena {
  ArenaHandle handle = 0;  // a stale one, if it does not exist
  bool exists = false;
  int user = none;  // the seat
};

struct Block {
  Held held;
  int arena = none;
};

class Play {
 public:
  explicit Play(Input& input) : input_{input} {}

  void run() {
    while (!input_.is_empty()) {
      seat_ = input_.byte() % Seats::count;
      auto turn = [this] {
        for (unsigned left = 1 + input_.byte() % 32; left != 0 && !input_.is_empty(); --left)
          step();
      };
      seats_.run(seat_, turn);
      if (input_.byte() % 16 == 0) end_thread(1 + input_.byte() % (Seats::count - 1));
    }
    seat_ = 0;
    check_everything();
    for (unsigned seat = 1; seat < Seats::count; ++seat) end_thread(seat);
    while (!scopes_[0].empty()) leave();
    for (int i = 0; i < arena_count; ++i) end_arena(i, true);
    while (!blocks_.empty()) release(blocks_.size() - 1);
    allocator.heap().trim(0);
    check_everything();
    require(allocator.heap().measures().free_bytes == allocator.heap().measures().segment_bytes,
            "not all memory is free in the end");
  }

 private:
  static constexpr int arena_count = 5;
  static constexpr std::size_t most_blocks = 3000;
  static constexpr std::size_t most_scopes = 12;

  void step() {
    switch (const unsigned what = input_.byte(); what % 20) {
      case 0:
        return create(arena());
      case 1:
        return end_arena(arena(), what % 40 < 20);
      case 2:
      case 3:
        return enter(arena());
      case 4:
        return enter(none);
      case 5:
      case 6:
      case 7:
        return leave();
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
        return allocate();
      case 13:
      case 14:
      case 15:
      case 16:
        for (unsigned left = input_.byte() % 32; left != 0 && !blocks_.empty(); --left)
          release(input_.below(65536) % blocks_.size());
        return;
      case 17:
        return reallocate();
      case 18:
        return maintain();
      default:
        return check_something();
    }
  }

  int arena() { return input_.byte() % arena_count; }

  std::size_t size() {
    const std::size_t kind = input_.byte();
    const std::size_t detail = input_.byte();
    if (kind < 160) return kind * 4 + detail;
    return kind < 250 ? kind * detail : (kind << 11) + (detail << 9);
  }

  int innermost() const { return scopes_[seat_].empty() ? none : scopes_[seat_].back(); }

  // The result of a call that needs exclusive use of the arena.
  int expected(const Arena& arena, bool may_be_in_scope) {
    int error = !arena.exists ? EINVAL : arena.user == none ? 0 : EBUSY;
    if (may_be_in_scope && arena.exists && arena.user == static_cast<int>(seat_)) error = 0;
    totals.refused += error != 0 ? 1 : 0;
    return error;
  }

  void create(int number) {
    Arena& arena = arenas_[number];
    if (arena.exists) return;
    arena = {engine::create_arena(), true, none};
    require(arena.handle != 0, "no arena though there is memory");
  }

  void end_arena(int number, bool destroys) {
    Arena& arena = arenas_[number];
    const int error = expected(arena, false);
    if (error == 0) check_contents(number);
    const int answer =
        destroys ? engine::destroy_arena(arena.handle) : engine::reset_arena(arena.handle);
    require(answer == error, "an end of an arena answered otherwise");
    if (error != 0) return;
    totals.freed_with_arenas +=
        std::erase_if(blocks_, [&](const Block& block) { return block.arena == number; });
    arena.exists = !destroys;
  }

  void enter(int number) {
    if (scopes_[seat_].size() >= most_scopes) return;
    const int error = number == none ? 0 : expected(arenas_[number], true);
    // Handle 0 is the thread's own heap.
    if (number != none && arenas_[number].handle == 0) return;
    const ArenaHandle handle = number == none ? 0 : arenas_[number].handle;
    require(engine::enter_scope(handle) == error, "an enter answered otherwise");
    if (error != 0) return;
    scopes_[seat_].push_back(number);
    totals.most_scopes = std::max(totals.most_scopes, scopes_[seat_].size());
    if (number != none) arenas_[number].user = static_cast<int>(seat_);
  }

  void leave() {
    std::vector<int>& scopes = scopes_[seat_];
    require(engine::leave_scope() == (scopes.empty() ? EINVAL : 0), "a leave answered otherwise");
    if (scopes.empty()) return;
    const int number = scopes.back();
    scopes.pop_back();
    note_left(number);
  }

  void note_left(int number) {
    const std::vector<int>& scopes = scopes_[seat_];
    if (number != none && std::find(scopes.begin(), scopes.end(), number) == scopes.end())
      arenas_[number].user = none;
  }

  // Its scopes end with it.
  void end_thread(unsigned seat) {
    seats_.leave(seat, false);
    for (const int number : scopes_[seat]) {
      if (number != none) arenas_[number].user = none;
    }
    scopes_[seat].clear();
  }

  // The heap to which, by the block's arena, the engine should say it belongs.
  void require_owner(const Block& block) const {
    const engine::PageMapEntry entry = engine::entry_of(block.held.address);
    const bool is_large = entry == engine::large_entry;
    const engine::Span& span = engine::page_map.spans[engine::page_of(block.held.address)];
    const std::uint32_t in_list = is_large ? span.arena.load() : 0;
    const bool is_arenas = is_large ? in_list != 0 : entry >= engine::arena_bit;
    require(is_arenas == (block.arena != none), "a block is an arena's, or none's, by mistake",
            block.held.address);
    if (block.arena == none) return;
    const ArenaHandle number = engine::arena_number(arenas_[block.arena].handle);
    require((is_large ? in_list : engine::heap_number(entry)) == number,
            "a block is another arena's", block.held.address);
  }

  void add(void* p, std::size_t bytes, int arena) {
    require(p != nullptr, "a request was refused although there is memory");
    Block block;
    block.held = {.address = static_cast<std::byte*>(p),
                  .bytes = bytes,
                  .usable = allocator.usable_size(p),
                  .alignment = min_alignment,
                  .seat = seat_};
    block.arena = arena;
    ++seed_;
    block.held.fill(mix(seed_), seed_ % 4 == 0);
    require_owner(block);
    blocks_.push_back(block);
  }

  void allocate() {
    const unsigned how = input_.byte();
    const std::size_t bytes = size();
    for (unsigned left = 1 + how % 24; left != 0 && blocks_.size() < most_blocks; --left) {
      void* const p = how < 32   ? allocator.calloc(1, bytes)
                      : how < 64 ? allocator.memalign(std::size_t{1} << how % 17, bytes)
                                 : allocator.malloc(bytes);
      add(p, bytes, innermost());
      ++totals.allocations;
    }
  }

  Block take(std::size_t number) {
    const Block block = blocks_[number];
    block.held.require_intact();
    blocks_[number] = blocks_.back();
    blocks_.pop_back();
    return block;
  }

  void release(std::size_t number) {
    const Block block = take(number);
    totals.foreign_frees += block.arena != innermost() || block.held.seat != seat_ ? 1 : 0;
    allocator.free(block.held.address);
  }

  void reallocate() {
    if (blocks_.empty()) return;
    Block block = take(input_.below(65536) % blocks_.size());
    const std::size_t bytes = 1 + size();
    void* const p = allocator.realloc(block.held.address, bytes);
    require(p != nullptr, "a realloc was refused although there is memory");
    const bool is_moved = p != block.held.address;
    block.held.address = static_cast<std::byte*>(p);
    block.held.keep(bytes);
    block.held.require_intact();
    add(p, bytes, is_moved ? innermost() : block.arena);
  }

  void maintain() {
    const unsigned how = input_.byte();
    if (how < 64) {
      allocator.heap().trim(how * 1000);
    } else if (how < 128) {
      allocator.heap().housekeep();
    } else if (how < 192) {
      engine::collect_idle_arenas();
    } else {
      allocator.heap().fork_prepare();
      allocator.heap().fork_parent();
    }
  }

  void check_contents(int number) const {
    for (const Block& block : blocks_) {
      if (block.arena == number) block.held.require_intact();
    }
  }

  void check_something() {
    if (input_.byte() % 4 == 0) return check_everything();
    const int number = arena();
    engine::ArenaUsage usage;
    const int error = expected(arenas_[number], true);
    require(engine::measure_arena(arenas_[number].handle, usage) == error,
            "a measure answered otherwise");
    if (error != 0) return;
    std::size_t used_bytes = 0;
    for (const Block& block : blocks_) used_bytes += block.arena == number ? block.held.usable : 0;
    require(usage.used_bytes == used_bytes, "an arena measures other blocks than it has");
    require(usage.slab_bytes + usage.large_bytes >= used_bytes, "blocks are nowhere");
  }

  void check_everything() {
    require(allocator.heap().is_valid(), "the heap is not valid");
    for (const Block& block : blocks_) {
      block.held.require_intact();
      require_owner(block);
    }
    std::size_t used_blocks = 0;
    const auto visit = [](const BlockView& block, void* count) {
      *static_cast<std::size_t*>(count) += block.state == BlockState::used ? 1 : 0;
      return true;
    };
    require(allocator.heap().walk(visit, &used_blocks), "a walk ended early");
    std::size_t frames = 0;  // of scopes, which are allocated in the thread's heap
    for (const std::vector<int>& scopes : scopes_) frames += scopes.size();
    require(used_blocks >= blocks_.size() && used_blocks <= blocks_.size() + frames,
            "another number of blocks is in use");
  }

  Input& input_;
  Seats seats_;
  unsigned seat_ = 0;
  std::uint64_t seed_ = 0;
  Arena arenas_[arena_count];
  std::vector<int> scopes_[Seats::count];
  std::vector<Block> blocks_;
};

}  // namespace

bool report_totals() {
  std::printf(
      "%zu allocations, %zu blocks freed with their arenas, %zu foreign frees, %zu refused calls, "
      "%zu scopes within one another\n",
      totals.allocations, totals.freed_with_arenas, totals.foreign_frees, totals.refused,
      totals.most_scopes);
  return totals.freed_with_arenas != 0 && totals.foreign_frees != 0 && totals.refused != 0 &&
         totals.most_scopes > 2;
}

}  // namespace ts::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ts::current_options.background = ts::Background::off;
  ts::fuzz::allocator.free(ts::fuzz::allocator.malloc(1));
  ts::fuzz::Seats::make_key();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ts::fuzz::Input input{data, size};
  ts::fuzz::Play{input}.run();
  return 0;
}
