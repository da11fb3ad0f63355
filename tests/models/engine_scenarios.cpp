#include "engine_scenarios.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "core/attention.h"
#include "core/cache_bins.h"
#include "core/common_heap.h"
#include "core/current_heap.h"
#include "core/fork.h"
#include "core/heap_hold.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/large_blocks.h"
#include "core/misuse.h"
#include "core/page_heap.h"
#include "core/reclaim.h"
#include "core/reclaim_all.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "core/spare_lists.h"
#include "core/thread_heap.h"
#include "features/arenas/arenas.h"
#include "features/arenas/idle_arenas.h"
#include "features/arenas/scopes.h"
#include "features/guard/sampled_guard.h"
#include "features/hugepages/huge_pages.h"
#include "features/limits/limits.h"
#include "features/profile/probes.h"
#include "features/profile/sample_heap.h"
#include "features/profile/sampling.h"
#include "features/sparse/scavenge.h"
#include "features/sparse/slab_purge.h"
#include "os/os.h"
#include "unwind/unwind.h"

namespace ts::engine {
namespace {

using testing::Limits;
using testing::NamedScenario;
using testing::Scenario;

// A batch of two blocks is full, a slab has one page, and its bits one word.
constexpr unsigned tested_class = class_for(2048);
constexpr const SizeClass& tested = size_classes[tested_class];
static_assert(tested.carve_blocks == 2 && tested.slab_pages == 1 && tested.first_slab_pages == 1);
constexpr std::size_t page_limit = batch_count + 1;
// Slabs 0 and 32 share a batch.
constexpr std::array<unsigned, 4> slab_pages{0, 1, 2, batch_count};
constexpr unsigned first_heaps = 4;  // exist from the start
constexpr unsigned heap_limit = 5;
constexpr unsigned blocks_per_page = blocks_in_slab(tested, 1);

// ---- memory, the same at the beginning of each execution ----

struct Tables {
  std::array<ThreadHeap, heap_limit + 1> heaps;
  std::array<Span, page_limit> spans;
  std::array<SlabUse, page_limit> uses;
  std::array<RemoteFrees, page_limit> remote_frees;
  std::array<MapPage, page_limit> map;
};
alignas(Tables) constinit std::byte tables_bytes[sizeof(Tables)] = {};
alignas(Tables) constinit std::byte first_tables[sizeof(Tables)] = {};
Tables& tables = *reinterpret_cast<Tables*>(tables_bytes);
alignas(page_bytes) constinit std::byte page_memory[page_limit * page_bytes] = {};

// The state of the program, and the double of the page heap.
struct Program {
  std::array<bool, page_limit * blocks_per_page> is_live{};  // the program holds it
  std::array<bool, page_limit> is_retired{};
  Plain<Span*> retired = nullptr;  // page heap's lock
  Atomic<int> mail{0};
  Plain<void*> letter = nullptr;
  std::array<HeapFront*, testing::most_threads> heaps{};  // of the threads
  std::array<ScopeFrame*, testing::most_threads> scopes{};
  std::array<Plain<testing::Word>, heap_limit + 1> of_arena{};  // for the thread in its scope
};
alignas(Program) constinit std::byte program_bytes[sizeof(Program)] = {};
Program& program = *reinterpret_cast<Program*>(program_bytes);

ThreadHeap& heap(unsigned number) { return tables.heaps[number]; }
Span& slab(unsigned page) { return tables.spans[page]; }
void* block(unsigned page, unsigned number) { return block_at(slab(page), number); }

// Clears the link and the mark of a free block.
void clear(void* p) {
  static_cast<Block*>(p)->next = nullptr;
  static_cast<Block*>(p)->key = 0;
}

std::size_t index_of(const void* p) {
  const BlockPlace place = place_of(p, tested);
  if (place.slab_page >= page_limit || place.number >= blocks_per_page)
    testing::fail("a list leads to no block");
  return place.slab_page * blocks_per_page + place.number;
}

// ---- hand-built slabs, before the threads begin ----

void (*on_thread_exit)(void*) = nullptr;

unsigned heap_count() { return page_map.heap_count.load(); }

void make_first_tables() {
  page_map.base = reinterpret_cast<std::uintptr_t>(page_memory);
  page_map.page_count.store(page_limit);
  page_map.pages = tables.map.data();
  page_map.spans = tables.spans.data();
  page_map.uses = tables.uses.data();
  page_map.use_distance = static_cast<std::ptrdiff_t>(reinterpret_cast<std::byte*>(page_map.uses) -
                                                      reinterpret_cast<std::byte*>(page_map.spans));
  page_map.remote_frees = tables.remote_frees.data();
  page_map.heaps = tables.heaps.data();
  page_map.lowest_block.store(page_map.base);
  while (heap_count() < first_heaps) attach_heap();
  std::memcpy(first_tables, tables_bytes, sizeof first_tables);
}

// heap_lifecycle.cpp keeps its queue in its own variables: reset what an execution left there.
void empty_queue_of_abandoned() {
  for (ThreadHeap& each : tables.heaps) each.from_fork = each.recounts = false;
  for (unsigned i = 0; i < heap_limit && adopt_abandoned() != nullptr; ++i) {
  }
}

// So does arenas.cpp.
void empty_list_of_arenas() {
  page_map.heap_count.store(heap_limit);  // so that none is new
  while (create_arena() != 0) {
  }
}

void begin() {
  if (on_thread_exit == nullptr) make_first_tables();
  empty_queue_of_abandoned();
  empty_list_of_arenas();
  std::memcpy(tables_bytes, first_tables, sizeof first_tables);
  empty_queue_of_abandoned();
  page_map.heap_count.store(first_heaps);
  sampling_interval.store(0);
  takes_stacks.store(false);
  this_thread.heap = no_heap;
  this_thread.innermost_scope = nullptr;
  new (program_bytes) Program{};
  for (unsigned number = 1; number < heap_limit; ++number) {
    const std::string text = "heap " + std::to_string(number);
    testing::name(&heap(number).ready, 8, text + ".ready");
    testing::name(&heap(number).holder, 1, text + ".holder");
    testing::name(&heap(number).busy, 1, text + ".busy");
    testing::name(&heap(number).user, 8, text + ".user");
    testing::name(&heap(number).idle_mark, 8, text + ".idle_mark");
    testing::name(&heap(number).self, 4, text + ".self");
    testing::name(&heap(number), sizeof(ThreadHeap), text);
  }
  for (const unsigned page : slab_pages) {
    const std::string text = "slab " + std::to_string(page);
    testing::name(&slab(page), sizeof(Span), text);
    testing::name(&tables.uses[page].used, 4, text + ".used");
    testing::name(&tables.uses[page], sizeof(SlabUse), text + ".free_bits");
    testing::name(&tables.remote_frees[page].pending, 4, text + ".pending");
    testing::name(&tables.remote_frees[page].bits, 8, text + ".bits");
    testing::name(&tables.remote_frees[page], sizeof(RemoteFrees), text + ".remote_frees");
    testing::name(page_memory + page * page_bytes, page_bytes, "page " + std::to_string(page));
    testing::name(&tables.map[page], sizeof(MapPage), "entry " + std::to_string(page));
  }
  testing::name(&reclaim_lock, sizeof reclaim_lock, "reclaim_lock");
  testing::name(&samples_lock, sizeof samples_lock, "samples_lock");
  testing::name(&sampling_interval, sizeof sampling_interval, "sampling_interval");
  testing::name(&arenas_lock, sizeof arenas_lock, "arenas_lock");
  testing::name(&abandoned_lock, sizeof abandoned_lock, "abandoned_lock");
  testing::name(&page_heap, sizeof page_heap, "page heap's lock");
  testing::name(&program.mail, sizeof program.mail, "mail");
}

void make_span_in_use(Span& span) {
  span.pages = 1;
  span.state = SpanState::slab;
  span.size_class = tested_class;
  span.slab_blocks = blocks_per_page;
  span.arena.store(0, std::memory_order_relaxed);
}

// A slab of this many blocks; the program holds the first `live`.
void make_slab(unsigned page, unsigned owner, unsigned blocks, unsigned live) {
  Span& made = slab(page);
  const HeapHold hold{heap(owner)};
  make_span_in_use(made);
  made.slab_blocks = static_cast<std::uint16_t>(blocks);
  made.sparse_limit = 1;
  add_slab(heap(owner), made);
  made.carved = made.slab_blocks;
  add_used(made, live);
  made.has_keys = live != blocks;
  free_word_of(made, 0).store(lowest_bits(blocks) & ~lowest_bits(live), std::memory_order_relaxed);
  for (unsigned i = blocks; i-- > 0;) {
    program.is_live[page * blocks_per_page + i] = i < live;
    auto* const made_block = static_cast<Block*>(block(page, i));
    i < live ? clear_key(made_block) : set_key(made_block);
  }
  set_fast_free_threshold(made);
  if (live == blocks) unlink_partial(heap(owner), made);
}

// ---- what the program does ----

// The boundary between the program and the engine: the compiler moves no store across a call.
void call(testing::Where where = testing::Where::current()) { testing::detail::publish(where); }

// The program writes to a block that it holds.
void use(void* p) {
  if (!program.is_live[index_of(p)]) testing::fail("the program uses a block that it has freed");
  call();
  *static_cast<Plain<testing::Word>*>(p) = 7;
  call();
}

void free_block(void* p) {
  use(p);
  program.is_live[index_of(p)] = false;
  release(p);
}

// The same for another heap's block, through a batch; the bin would first keep one of this class.
void free_remotely(void* p) {
  use(p);
  program.is_live[index_of(p)] = false;
  release_remote(current_heap(), p, place_of(p, tested), tested, FoundBy::free);
}

// A thread without a heap.
void free_at_once(void* p) {
  use(p);
  program.is_live[index_of(p)] = false;
  release_remote_at_once(place_of(p, tested), FoundBy::free);
}

void* allocate() {
  void* const p = allocate_small(tested.block_bytes, tested_class * sizeof(CacheBin));
  if (p == nullptr) return nullptr;
  bool& is_live = program.is_live[index_of(p)];
  if (is_live) testing::fail("a block in use is handed out");
  is_live = true;
  use(p);
  return p;
}

// The calling thread ends. Blocks that it frees afterwards are freed at once.
void end_thread() { on_thread_exit(&current_heap()); }

void collect_held() {
  const HeapHold hold{current_heap()};
  collect(current_heap());
}

// Frees a block as if its bin had no capacity.
void free_past_bin(void* p) {
  CacheBin& bin = current_heap().bins[tested_class];
  Block* const head = bin.head;
  const std::int32_t capacity_left = bin.capacity_left;
  bin.head = nullptr;
  bin.capacity_left = 0;
  free_block(p);
  bin.head = head;
  bin.capacity_left = capacity_left;
}

// One thread passes a block, or null, to another, once.
void pass(void* p) {
  program.letter = p;
  program.mail.store(1, std::memory_order_release);
}
void* receive() {
  program.mail.wait_for(1);
  return program.letter;
}

// ---- what must hold ----

enum class Place : std::uint8_t { nowhere, in_use, on_slab, in_bin };

// Each block is in one place, and the counts agree. With `in_child`, some blocks may be lost, but
// none may be in two places.
void check_blocks(bool in_child) {
  std::array<Place, page_limit * blocks_per_page> places{};
  const auto put = [&](const void* p, Place place) {
    Place& at = places[index_of(p)];
    if (at != Place::nowhere) testing::fail("a block is in two places");
    at = place;
  };
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (program.is_live[i]) places[i] = Place::in_use;
  }
  std::array<std::uint32_t, page_limit> in_bins{};
  for (unsigned number = 1; number <= heap_count(); ++number) {
    ThreadHeap& each = heap(number);
    if (in_child && (each.busy.load() || each.holder.load() != Holder::none)) continue;
    const auto put_list = [&](const Block* b) {
      for (unsigned left = 64; b != nullptr && left-- != 0; b = b->next) {
        put(b, Place::in_bin);
        ++in_bins[index_of(b) / blocks_per_page];
      }
    };
    put_list(first_block(each.bins[tested_class]));
    put_list(first_block(each.sampling_bins[tested_class]));
    for_each_spare_list(each, [&](const Block* list, unsigned) { put_list(list); });
  }
  for (const unsigned page : slab_pages) {
    const PageMapEntry entry = tables.map[page].entry.load();
    if (entry == 0) continue;
    Span& each = slab(page);
    const ThreadHeap& owner = *heap_of(entry);
    if (in_child && (owner.busy.load() || owner.holder.load() != Holder::none)) continue;
    for (unsigned i = 0; i < each.slab_blocks; ++i) {
      if (!is_free(page, i)) continue;
      put(block(page, i), Place::on_slab);
      if (!in_child && i < each.carved && !is_keyless(each) && !has_key(block(page, i)))
        testing::fail("a free block has no mark");
    }
    std::uint32_t live = 0;
    for (unsigned i = 0; i < blocks_per_page; ++i)
      live += program.is_live[page * blocks_per_page + i] ? 1 : 0;
    if (used(each) < live + in_bins[page]) testing::fail("a block in use is not counted");
    if (in_child) continue;
    if (used(each) != live + in_bins[page]) testing::fail("used counts other blocks");
    if (used(each) + count_free_blocks(each) != each.slab_blocks) testing::fail("a block is lost");
    if (is_listed(each) != has_free_block(each)) testing::fail("the wrong slabs are listed");
    const RemoteFrees& frees = remote_frees_of(&each);
    if (frees.pending.load() != 0 || frees.bits[0].load() != 0)
      testing::fail("remote frees are left");
  }
}

// At the end all threads have ended, or wait forever.
void end() {
  if (const Fault fault = find_abandoned_fault()) return testing::fail(fault.equation);
  for_each_heap([](ThreadHeap& each) {
    if (each.holder.load() != Holder::none) testing::fail("a heap is held for ever");
    if (each.busy.load()) testing::fail("a heap is busy for ever");
    if (!is_arena(each) && is_sampling(each) != is_sampling())
      testing::fail("a heap does not sample as it is to");
    flush_batches(each);
  });
  for_each_heap([](ThreadHeap& each) {
    const HeapHold hold{each};
    collect(each);
  });
  check_blocks(false);
  // Twice, since one heap's bins may contain blocks of a heap that was flushed before.
  for (int round = 0; round < 2; ++round) {
    for_each_heap([](ThreadHeap& each) {
      const HeapHold hold{each};
      flush(each);
    });
  }
  for (const unsigned page : slab_pages) {
    bool is_live = false;
    for (unsigned i = 0; i < blocks_per_page; ++i)
      is_live |= program.is_live[page * blocks_per_page + i];
    if (!is_live && tables.map[page].entry.load() != 0)
      testing::fail("an empty slab is not retired");
  }
}

// In the child of a fork, in a thread whose heap is number 4.
void in_child() {
  this_thread.heap = &heap(first_heaps);
  this_thread.innermost_scope = nullptr;
  fork_child();
  // Threads of the child adopt the heaps, allocate, and end.
  std::array<HeapFront*, first_heaps> adopted{};
  for (HeapFront*& each : adopted) {
    this_thread.heap = no_heap;
    if (attach_heap() == nullptr) break;
    each = this_thread.heap;
    for (unsigned c = 1; c < class_count; ++c)
      if (each->bins[c].reciprocal != size_classes[c].reciprocal)
        testing::fail("a heap was taken over before it had all that free() looks at");
    for (int i = 0; i < 3; ++i) allocate();
  }
  for (HeapFront* const each : adopted) {
    this_thread.heap = each;
    if (each != nullptr) end_thread();
  }
  this_thread.heap = &heap(first_heaps);
  for (int round = 0; round < 2; ++round) {
    {
      const HeapHold hold{current_heap()};
      flush(current_heap());
    }
    collect_abandoned(SIZE_MAX);
  }
  if (const Fault fault = find_abandoned_fault()) return testing::fail(fault.equation);
  check_blocks(true);
}

// In the one thread, of heap 2, that left a call by longjmp and continues; its heap may stay held
// or busy forever.
void after_longjmp() {
  this_thread.heap = &heap(2);
  const unsigned page = slab_pages.back();
  if (program.is_live[page * blocks_per_page + 1]) free_remotely(block(page, 1));
  for (unsigned number : {2U, 1U}) {
    const HeapHold hold{heap(number)};
    flush(heap(number));
  }
  check_blocks(true);
}

// The same, and allocates all remaining blocks.
void allocate_after_longjmp() {
  this_thread.heap = &heap(2);
  for (unsigned i = 0; i < 2 * blocks_per_page; ++i) allocate();
  check_blocks(true);
}

// `heaps`: the threads' heaps; 0 for none.
Scenario scenario_of(void (*make)(), std::vector<unsigned> heaps,
                     std::vector<std::function<void()>> threads, void (*after_cut)() = in_child) {
  Scenario scenario;
  scenario.set_up = [=] {
    begin();
    make();
    for (std::size_t i = 0; i < heaps.size(); ++i)
      program.heaps[i] = heaps[i] == 0 ? no_heap : &heap(heaps[i]);
  };
  scenario.threads = std::move(threads);
  scenario.end = after_cut == after_longjmp ? after_longjmp : end;
  scenario.after_cut = after_cut;
  scenario.enter = [](unsigned thread) {
    this_thread.heap = program.heaps[thread];
    this_thread.innermost_scope = program.scopes[thread];
  };
  scenario.leave = [](unsigned thread) {
    program.heaps[thread] = this_thread.heap;
    program.scopes[thread] = this_thread.innermost_scope;
  };
  return scenario;
}

// ---- the scenarios ----

// Slab 0 has four blocks in use; slab 1 has a free one, so that slab 0 is not the only one.
void two_slabs() {
  make_slab(1, 1, 2, 1);
  make_slab(0, 1, 4, 4);
}
void one_slab() { make_slab(0, 1, 3, 3); }
// Slab 0 has a free block too, so it is listed.
void listed_slabs() {
  make_slab(1, 1, 2, 1);
  make_slab(0, 1, 5, 4);
}

// One slab, which stays when it becomes empty.
void only_slab() { make_slab(0, 1, 4, 2); }

// Slab 0 has a free block next to two used ones, and two more in the next OS page.
void slab_to_purge() {
  make_slab(1, 1, 2, 1);
  make_slab(0, 1, 5, 2);
}

// All blocks of slab 0 are in a spare list.
void spare_list() {
  ThreadHeap& owner = heap(1);
  const std::uint32_t blocks = max_bin_capacity(owner, tested);
  make_slab(1, 1, 2, 1);
  make_slab(0, 1, blocks, blocks);
  const HeapHold hold{owner};
  set_capacity(owner, tested_class, blocks);
  for (unsigned i = 0; i < blocks; ++i) {
    program.is_live[i] = false;
    set_key(block(0, i))->next = i + 1 < blocks ? static_cast<Block*>(block(0, i + 1)) : nullptr;
  }
  owner.spare_lists.first[0] = static_cast<Block*>(block(0, 0));
  owner.spare_lists.size_class[0] = tested_class;
  owner.spare_lists_of[tested_class] = 1;
  owner.spare_list_count.store(1, std::memory_order_relaxed);
}

void slabs_of_one_batch() {
  make_slab(batch_count, 1, 4, 3);
  make_slab(0, 1, 5, 4);
}

void free_two() {
  free_remotely(block(0, 0));
  free_remotely(block(0, 1));
}
void free_third_and_fourth() {
  free_remotely(block(0, 2));
  flush_batches(current_heap());
  free_at_once(block(0, 3));
}
void reclaim_owner() { reclaim(heap(1)); }

// So far apart that no block of a scenario is sampled.
void switch_sampling(bool on) {
  set_sampling_interval(on ? max_sampling_interval : 0);
  if (!takes_stacks.load(std::memory_order_relaxed)) testing::fail("samples have no stacks");
}

// Heap 3 belongs to an arena.
constexpr ArenaHandle arena_handle = ArenaHandle{1} << generation_shift | 3;
void make_arena() {
  heap(3).self.fetch_or(arena_bit, std::memory_order_relaxed);
  heap(3).idle_mark.store(idle_mark_of(arena_handle));
  heap(3).user.store(idle_mark_of(arena_handle));
}
void arena_with_blocks() {
  make_arena();
  make_slab(0, 3, 4, 2);
}
void arena_with_free_blocks() {
  make_arena();
  make_slab(0, 3, 2, 0);
}

// Unless it is refused for one of these reasons.
template <class Act>
void in_scope_of(ArenaHandle handle, std::initializer_list<int> refusals, Act act) {
  const int error = enter_scope(handle);
  const bool is_expected = std::find(refusals.begin(), refusals.end(), error) != refusals.end();
  if (error != 0 && !is_expected) testing::fail("the scope of an arena is refused");
  if (error != 0) return;
  Plain<testing::Word>& changes = program.of_arena[arena_number(handle)];
  changes = changes + 1;
  act();
  changes = changes + 1;
  if (leave_scope() != 0) testing::fail("the thread is not in the scope that it entered");
}
void use_arena_if_idle() {
  in_scope_of(arena_handle, {EBUSY}, [] {
    if (void* const p = allocate()) free_block(p);
  });
}
void use_new_arena() {
  const ArenaHandle handle = create_arena();
  if (handle == arena_handle) testing::fail("a new arena has the handle of one that is destroyed");
  if (handle != 0) in_scope_of(handle, {}, allocate);
}
void purge_first() {
  SlabPurge purge;
  {
    const HeapHold hold{current_heap()};
    // Unless others emptied it, and a reclaimer took it.
    Span* listed = current_heap().partial[tested_class];
    while (listed != nullptr && listed != &slab(0)) listed = listed->next;
    if (listed != nullptr) begin_purge(current_heap(), *listed, purge);
  }
  if (purge.to_purge == 0) return;
  const std::uint64_t gone = discard(purge);
  const HeapHold hold{current_heap()};
  end_purge(current_heap(), purge, gone);
  relist_or_retire(current_heap(), *purge.slab);
}

}  // namespace

// ---- doubles of the functions that the tested code calls ----

void PageHeap::release(Span* span) noexcept {
  const auto page = static_cast<unsigned>(first_page_of(span));
  for (unsigned i = 0; i < blocks_per_page; ++i) {
    if (program.is_live[page * blocks_per_page + i])
      testing::fail("a slab is retired with a block in use");
  }
  if (program.is_retired[page]) testing::fail("a slab is retired twice");
  program.is_retired[page] = true;
  if (span_entry(*span) != 0) testing::fail("a retired slab has an entry");
  RemoteFrees& frees = remote_frees_of(span);
  static const std::byte zero[sizeof frees.pending + sizeof frees.bits] = {};
  if (std::memcmp(&frees.pending, zero, sizeof frees.pending) != 0 ||
      std::memcmp(&frees.bits, zero, sizeof frees.bits) != 0)
    testing::fail("a slab is retired with remote frees");
  testing::destroy(&frees.pending, sizeof frees.pending, sizeof frees.pending);
  testing::destroy(&frees.bits, sizeof frees.bits[0], sizeof frees.bits[0]);
  const Guard guard{lock_};
  span->state = SpanState::free;
  span->size_class = 0;
  span->pages = 0;
  span->slab_blocks = 0;
  span->carved = 0;
  span->usable_pages.store(0, std::memory_order_relaxed);
  span->sparse_limit = 0;
  span->purged = 0;
  span->purged_blocks = 0;
  span->has_keys = false;
  use_of(*span).fast_free_threshold = unlisted;
  span->zeroed = false;
  span->previous = nullptr;
  for (unsigned i = 0; i < blocks_per_page; ++i) clear(block(page, i));
  span->next = program.retired;
  program.retired = span;
}

Span* PageHeap::allocate(std::size_t, std::size_t, unsigned, From) noexcept {
  const Guard guard{lock_};
  Span* const span = program.retired;
  if (span == nullptr) return nullptr;
  program.retired = span->next;
  program.is_retired[first_page_of(span)] = false;
  make_span_in_use(*span);
  return span;
}

bool PageHeap::purge_some(bool) noexcept { return false; }
std::size_t PageHeap::send_purges() noexcept { return 0; }

std::uint32_t PageHeap::new_heap(std::uint32_t) noexcept {
  const Guard guard{lock_};
  const unsigned number = heap_count() + 1;
  if (number > heap_limit) return 0;
  page_map.heap_count.store(number);
  return number;
}

bool PageHeap::has_room(std::size_t) noexcept { return true; }
bool PageHeap::merge_for(std::size_t) noexcept { return false; }
bool PageHeap::wait_for_purge(std::uint32_t&) noexcept { return false; }
std::size_t PageHeap::touched_pages() noexcept { return 0; }

// Features that no scenario uses.
void hooks::attend() noexcept {}
void hooks::attend_to_heap(ThreadHeap& heap) noexcept {
  if (std::exchange(heap.is_to_scavenge, false)) scavenge(heap);
}
void hooks::before_growth(std::size_t) noexcept {}
void hooks::growth_refused(std::size_t, std::size_t) noexcept {}
void hooks::before_failure() noexcept {}
void hooks::thread_begins() noexcept {}
void hooks::frees_stay_uncollected(std::uint32_t) noexcept {}
void hooks::thread_ended() noexcept {}
void hooks::child_begins() noexcept {}
std::span<Mutex* const> hooks::mutexes_in_order() noexcept {
  static constinit Mutex* const in_order[] = {
      &background_lock, &arenas_lock,    &common_lock,  &samples_lock,
      &collection_lock, &abandoned_lock, &reclaim_lock, &page_heap.lock(),
  };
  return in_order;
}
void* hooks::allocate_guarded(unsigned) noexcept { return nullptr; }
bool hooks::release_foreign(const void*) noexcept { return false; }
bool hooks::release_sampled(void*, PageMapEntry) noexcept { return false; }
void hooks::before_large_release(const Span&) noexcept {}
void refuse_huge_slab_pages() noexcept {}
bool report_invalid_pointer(const void*, FoundBy) noexcept {
  testing::fail("a stray pointer is reported");
  return true;
}
void release_large(void*, std::size_t) noexcept { testing::fail("no block here is large"); }
constinit ProbeSemaphores probe_semaphores;
bool open_samples() noexcept { return true; }
void* allocate_sample(std::size_t, unsigned, std::uint64_t, const void*, void*) noexcept {
  testing::fail("no block here is a sample");
  return nullptr;
}

}  // namespace ts::engine

namespace ts::os {
constinit const ModuleTable module_table{};
bool call_at_thread_exit(void (*on_exit)(void*), void*) noexcept {
  engine::on_thread_exit = on_exit;
  return true;
}
bool has_one_thread() noexcept { return false; }
bool has_several_threads() noexcept { return false; }
void explain_refusal() noexcept {}
std::uint64_t nanoseconds() noexcept { return 0; }
std::uint64_t coarse_milliseconds() noexcept { return 0; }
std::uint64_t process_id() noexcept { return 1; }
std::uint32_t thread_id() noexcept { return 1; }
std::size_t page_bytes() noexcept { return 4096; }
// Its links are gone; the program must hold none of its blocks.
bool discard_unseen(void*, std::size_t) noexcept { return false; }

bool discard(void* begin, std::size_t bytes) noexcept {
  auto* const from = static_cast<std::byte*>(begin);
  for (std::size_t at = 0; at < bytes; at += engine::tested.block_bytes) {
    if (engine::program.is_live[engine::index_of(from + at)])
      testing::fail("a block in use is discarded");
    engine::clear(from + at);
  }
  return true;
}
}  // namespace ts::os

namespace ts {
void report_misuse(Misuse kind, FoundBy, const void*, std::size_t) noexcept {
  testing::fail("misuse is reported, of kind " + std::to_string(static_cast<int>(kind)));
}
void fatal(const char* what, const void*) noexcept {
  testing::fail(what);
  std::abort();
}
}  // namespace ts

namespace ts::testing {

using namespace engine;

const std::vector<NamedScenario>& engine_scenarios() {
  static const std::vector<NamedScenario> scenarios{
      {"owner collects",
       scenario_of(two_slabs, {2, 3, 1},
                   {free_two, free_third_and_fourth,
                    [] {
                      collect_held();
                      collect_held();
                    }}),
       {.preemptions = 2}},
      {"blocks are handed out again",
       scenario_of(one_slab, {2, 3, 1},
                   {free_two,
                    [] {
                      if (void* const p = receive()) free_at_once(p);
                    },
                    [] {
                      pass(allocate());
                      if (void* const p = allocate()) free_block(p);
                    }}),
       {.preemptions = 2}},
      {"a count comes after its block",
       scenario_of(one_slab, {2, 3, 1},
                   {[] { free_at_once(block(0, 0)); }, [] { free_at_once(block(0, 1)); },
                    [] {
                      allocate();
                      collect_held();
                    }}),
       {.preemptions = 2}},
      {"a reclaimer takes the slab",
       scenario_of(two_slabs, {2, 3, 4}, {free_two, free_third_and_fourth, reclaim_owner}),
       {.preemptions = 2}},
      {"an owner collects and a reclaimer reclaims",
       scenario_of(two_slabs, {2, 3, 4, 1},
                   {free_two, free_third_and_fourth, reclaim_owner, collect_held}),
       {.preemptions = 1}},
      {"an owner overflows and a reclaimer reclaims",
       scenario_of(listed_slabs, {2, 4, 1},
                   {free_two, reclaim_owner,
                    [] {
                      free_past_bin(block(0, 2));
                      free_past_bin(block(0, 3));
                      free_past_bin(block(1, 0));
                    }}),
       {.preemptions = 2}},
      {"an owner empties its only slab and all heaps are reclaimed",
       scenario_of(only_slab, {2, 4, 1},
                   {[] { free_at_once(block(0, 0)); }, [] { reclaim_all(); },
                    [] {
                      free_past_bin(block(0, 1));
                      collect_held();
                      allocate();
                    }}),
       {.preemptions = 2}},
      {"an owner takes its spare list back and a reclaimer takes it",
       scenario_of(spare_list, {4, 1},
                   {[] { reclaim_all(); },
                    [] {
                      void* const p = allocate();
                      free_past_bin(block(1, 0));
                      if (p != nullptr) free_past_bin(p);
                    }}),
       {.preemptions = 2}},
      {"an owner purges OS pages and a reclaimer reclaims",
       scenario_of(slab_to_purge, {2, 4, 1},
                   {free_two, reclaim_owner,
                    [] {
                      purge_first();
                      collect_held();
                    }}),
       {.preemptions = 2}},
      {"purged blocks are handed out again",
       scenario_of(slab_to_purge, {2, 1},
                   {free_two,
                    [] {
                      purge_first();
                      for (int i = 0; i < 4; ++i) allocate();
                    }}),
       {.preemptions = 2}},
      {"a reclaimed slab gets another owner",
       scenario_of(two_slabs, {2, 3, 4},
                   {[] {
                      free_two();
                      if (void* const p = receive()) free_at_once(p);
                    },
                    free_third_and_fourth,
                    [] {
                      reclaim_owner();
                      pass(allocate());
                      collect_held();
                    }}),
       {.preemptions = 2}},
      {"a heap is abandoned and adopted",
       scenario_of(two_slabs, {1, 0, 2},
                   {[] {
                      free_block(block(0, 3));
                      end_thread();
                      free_block(block(0, 2));
                    },
                    [] {
                      if (void* const p = allocate()) free_block(p);
                    },
                    free_two}),
       {.preemptions = 2}},
      {"an abandoned heap is collected",
       scenario_of(two_slabs, {1, 3, 2, 0},
                   {[] {
                      free_block(block(0, 3));
                      free_block(block(0, 2));
                      end_thread();
                    },
                    [] { collect_abandoned(SIZE_MAX); }, free_two, [] { attach_heap(); }}),
       {.preemptions = 1}},
      {"an arena goes from thread to thread",
       scenario_of(arena_with_blocks, {1, 2, 4},
                   {use_arena_if_idle, use_arena_if_idle,
                    [] {
                      free_at_once(block(0, 0));
                      free_at_once(block(0, 1));
                    }}),
       {.preemptions = 2}},
      {"an idle arena is maintained",
       scenario_of(arena_with_blocks, {1, 2, 4},
                   {[] {
                      in_scope_of(arena_handle, {}, [] {
                        if (void* const p = allocate()) free_block(p);
                      });
                    },
                    [] {
                      collect_idle_arenas();
                      flush_arenas();
                    },
                    [] { free_at_once(block(0, 1)); }}),
       {.preemptions = 1}},
      {"an arena is destroyed and its heap serves another",
       scenario_of(arena_with_free_blocks, {1, 2, 4},
                   {[] {
                      in_scope_of(arena_handle, {EINVAL, EBUSY}, [] {});
                    },
                    [] {
                      const int error = destroy_arena(arena_handle);
                      if (error != 0 && error != EBUSY) testing::fail("an arena is not destroyed");
                      use_new_arena();
                    },
                    [] { create_arena(); }}),
       {.preemptions = 2}},
      {"sampling is switched on while a thread begins",
       scenario_of(two_slabs, {0, 4},
                   {[] {
                      if (void* const p = allocate()) free_block(p);
                    },
                    [] { switch_sampling(true); }}),
       {.preemptions = 3}},
      {"sampling is switched on and off while a thread begins",
       scenario_of(
           two_slabs, {0, 3, 4},
           {[] { attach_heap(); }, [] { switch_sampling(true); }, [] { switch_sampling(false); }}),
       {.preemptions = 3}},
      {"sampling is switched while an owner works",
       scenario_of(two_slabs, {1, 4, 2},
                   {[] {
                      free_block(block(0, 3));
                      allocate();
                      free_block(block(0, 2));
                      allocate();
                      allocate();
                    },
                    [] {
                      switch_sampling(true);
                      switch_sampling(false);
                      switch_sampling(true);
                    },
                    free_two}),
       {.preemptions = 1}},
      {"sampling is switched while a heap is abandoned and adopted",
       scenario_of(two_slabs, {1, 0, 4},
                   {[] {
                      free_block(block(0, 3));
                      end_thread();
                    },
                    [] {
                      if (void* const p = allocate()) free_block(p);
                    },
                    [] {
                      switch_sampling(true);
                      switch_sampling(false);
                    }}),
       {.preemptions = 1}},
      {"a fork while arenas are used",
       scenario_of(arena_with_blocks, {1, 2},
                   {use_arena_if_idle, [] { free_at_once(block(0, 0)); }}),
       {.preemptions = 1, .missing_stores = 4},
       300},
      {"a fork while a batch changes",
       scenario_of(slabs_of_one_batch, {2}, {[] {
                     free_remotely(block(0, 0));
                     free_remotely(block(batch_count, 0));
                     free_remotely(block(0, 1));
                   }}),
       {.preemptions = 0, .missing_stores = 8},
       300},
      {"a fork while blocks are freed",
       scenario_of(slabs_of_one_batch, {2, 1},
                   {free_two,
                    [] {
                      collect_held();
                      free_past_bin(block(batch_count, 1));
                      if (void* const p = allocate()) free_block(p);
                    }}),
       {.preemptions = 1, .missing_stores = 4},
       300},
      {"a fork while blocks are allocated",
       scenario_of(two_slabs, {1}, {[] {
                     free_block(block(0, 3));
                     free_block(block(0, 2));
                     for (int i = 0; i < 2; ++i) allocate();
                   }}),
       {.preemptions = 0, .missing_stores = 8},
       300},
      {"a fork while a heap begins",
       scenario_of(one_slab, {0}, {[] {
                     if (void* const p = allocate()) free_block(p);
                   }}),
       {.preemptions = 0, .missing_stores = 8},
       300},
      {"a fork while heaps are adopted",
       scenario_of(two_slabs, {1, 0, 2},
                   {[] {
                      free_block(block(0, 3));
                      end_thread();
                    },
                    [] {
                      if (void* const p = allocate()) free_block(p);
                    },
                    free_two}),
       {.preemptions = 0},
       300},
      {"a fork while an abandoned heap is collected",
       scenario_of(two_slabs, {1, 2},
                   {[] {
                      free_block(block(0, 3));
                      end_thread();
                    },
                    [] {
                      collect_abandoned(1);
                      collect_abandoned(SIZE_MAX);
                    }}),
       {.preemptions = 0},
       300},
      {"a longjmp out of a free",
       scenario_of(
           [] {
             slabs_of_one_batch();
             make_slab(2, 2, 2, 1);
             // An earlier one left a bit that was never counted.
             program.is_live[2] = false;
             heap(2).batches[0].slab = &slab(0);
             heap(2).batches[0].bits = 1U << 2;
           },
           {2}, {[] {
             free_remotely(block(batch_count, 0));
             free_remotely(block(0, 0));
             free_remotely(block(0, 1));
             free_block(block(2, 0));
           }},
           after_longjmp),
       {.preemptions = 0, .missing_stores = 0},
       300},
      {"a longjmp out of a purge or a malloc",
       scenario_of(
           [] {
             make_slab(1, 2, 2, 1);
             make_slab(0, 2, 5, 2);
           },
           {2}, {[] {
             purge_first();
             for (int i = 0; i < 3; ++i) allocate();
           }},
           allocate_after_longjmp),
       {.preemptions = 0, .missing_stores = 0},
       300},
  };
  return scenarios;
}

Outcome run(const NamedScenario& named) {
  Outcome all;
  all.is_complete = true;
  const unsigned last = named.cuts;
  for (unsigned cut = last == 0 ? 0 : 1; cut <= last; ++cut) {
    Limits limits = named.limits;
    limits.cut = cut;
    const Outcome outcome = explore(named.scenario, limits);
    all.executions += outcome.executions;
    all.cuts += outcome.cuts;
    all.is_complete &= outcome.is_complete;
    all.failure = outcome.failure;
    if (outcome.unfinished != 0 && all.failure.empty()) all.failure = "a thread never ends";
    if (!all.failure.empty() || (cut != 0 && outcome.cuts + outcome.skipped == 0)) break;
  }
  return all;
}

}  // namespace ts::testing
