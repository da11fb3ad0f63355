// For each invariant of the engine, breaks it by changing one field and expects the check to name
// it. The last test reads the sources to make sure that no invariant is missing.
#include "core/invariants.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "core/heap_invariants.h"
#include "core/heap_lifecycle.h"
#include "core/large_blocks.h"
#include "core/slabs.h"
#include "core/sparse_slabs.h"
#include "features/arenas/arenas.h"
#include "features/arenas/scopes.h"
#include "features/profile/large_samples.h"
#include "features/profile/samples.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

using engine::FreeSpans;
using engine::FreeSpansTest;
using engine::large_entry;
using engine::PageHeapTest;
using engine::unlisted;

// An engine with one of everything: what the rows of the tables below break.
struct Whole {
  static constexpr unsigned small = class_for(48);
  const unsigned long_one = long_class();

  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  ThreadHeap& first_abandoned = make_heap();
  ThreadHeap& last_abandoned = make_heap();
  std::vector<void*> blocks;  // of `heap`, of class `small`, in three slabs
  Span* slab;                 // the first: with free blocks, pending ones, and others in use
  Span* fresh;                // the last: not carved to its end
  Span* long_slab;
  Span* large;
  Span* dirty;  // free spans; clean memory follows the last
  Span* clean;

  Whole() {
    const std::uint32_t in_slab = engine::blocks_in_slab(size_classes[small], 1);
    for (std::uint32_t i = 0; i < 2 * in_slab + 1; ++i) blocks.push_back(allocate(heap, 48));
    slab = &span_of(blocks[0]);
    fresh = &span_of(blocks.back());
    for (int i = 0; i < 100; ++i) release(heap, blocks[static_cast<std::size_t>(i)]);
    flush_bin_of(heap, small);
    void* in_long = nullptr;
    while (heap.slabs[long_one] < 2) in_long = allocate(heap, size_classes[long_one].block_bytes);
    long_slab = engine::slab_of(in_long);
    for (ThreadHeap* const owner : {&other, &first_abandoned, &last_abandoned})
      allocate(*owner, 48);
    large = &span_of(allocate(heap, 200'000));
    const std::size_t at_os_pages = 4 * page_bytes;
    void* const big = allocate(heap, 20 * page_bytes, at_os_pages);
    void* const next = allocate(heap, 24 * page_bytes);
    allocate(heap, 100'000);
    void* const own_slab = allocate(heap, 3 * page_bytes);
    release(heap, own_slab);
    release(heap, next);
    page_heap.trim(0);
    clean = &span_of(next);
    release(heap, big);
    dirty = &span_of(big);
    // Last, since any refill may collect.
    release(heap, blocks[200]);
    release(heap, blocks[201]);
    for (int i = 210; i < 240; ++i) release(other, blocks[static_cast<std::size_t>(i)]);
    engine::flush_batches(other);
    for (int i = 260; i < 270; ++i) release(other, blocks[static_cast<std::size_t>(i)]);
    const Guard guard{engine::abandoned_lock};
    engine::abandon(last_abandoned, true, engine::pages_of_slabs(last_abandoned));
    engine::abandon(first_abandoned, true, engine::pages_of_slabs(first_abandoned));
  }

  engine::MapPage& map_page(const Span* span, std::size_t page = 0) {
    return page_map.pages[engine::first_page_of(span) + page];
  }
  std::atomic<engine::PageMapEntry>& entry(const Span* span, std::size_t page = 0) {
    return map_page(span, page).entry;
  }
  engine::CacheBin& bin() { return heap.bins[small]; }
  std::uint32_t number(const void* p) { return engine::place_of(p, size_classes[small]).number; }
  engine::RemoteBatch& batch() {
    return other.batches[engine::first_page_of(slab) % engine::batch_count];
  }
  // For a queue of sparse slabs.
  std::uint32_t link(const Span& span) {
    return static_cast<std::uint32_t>(engine::first_page_of(&span) + 1);
  }
  void queue() {
    const engine::HeapHold hold{heap};
    for (Span* const low : {slab, fresh}) {
      if (engine::is_queued(*low)) engine::unqueue_sparse_slab(heap, *low);
      engine::queue_sparse_slab(heap, *low);
    }
  }
  // An arena with a slab, and two large blocks.
  ThreadHeap& arena() {
    const As as{heap};
    const engine::ArenaHandle made = engine::create_arena();
    engine::enter_scope(made);
    for (const std::size_t bytes : {100, 100'000, 200'000}) engine::Engine{}.allocate(bytes, 16);
    engine::leave_scope();
    return *engine::arena_of(made);
  }
  // Samples each malloc of the heap from now on: one small, one large. Then almost none, so that
  // its sampling bin has blocks.
  engine::CacheBin& sampling_bin() {
    const As as{heap};
    EXPECT_TRUE(engine::set_sampling_interval(1));
    for (const std::size_t bytes : {48, 100'000}) engine::Engine{}.allocate(bytes, 16);
    EXPECT_TRUE(engine::set_sampling_interval(engine::max_sampling_interval));
    void* in_bin[8];
    for (void*& p : in_bin) p = engine::Engine{}.allocate(48, 16);
    for (void* const p : in_bin) release(p);
    return heap.sampling_bins[small];
  }
  engine::RemoteFrees& frees() { return engine::remote_frees_of(slab); }
  Block* block(std::size_t i) { return static_cast<Block*>(blocks[i]); }
};

using Break = std::function<void(Whole&)>;
struct Row {
  const char* equation;
  Break breaks;
};

// Found by checking the whole engine.
const std::vector<Row>& engine_rows() {
  static const std::vector<Row> rows = {
      {"spans tile the pages in use", [](Whole& w) { w.large->pages = 0; }},
      {"a sample is a block in use",
       [](Whole& w) {
         w.sampling_bin();
         const Guard guard{engine::samples_lock};
         engine::samples.in_use.items[0].block = w.block(0);
       }},
      {"each large block with the mark is a sample",
       [](Whole& w) { w.large->arena.store(engine::sample_mark); }},
      {"spans tile the pages in use", [](Whole& w) { w.large->pages = 1 << 20; }},
      {"free neighbours of one kind are merged", [](Whole& w) { w.clean->zeroed = false; }},
      {"the last page of a free span agrees with the first",
       [](Whole& w) { ++w.dirty[w.dirty->pages - 1].pages; }},
      {"the last page of a free span agrees with the first",
       [](Whole& w) { w.dirty[w.dirty->pages - 1].state = SpanState::large; }},
      {"a free page has no entry", [](Whole& w) { w.entry(w.dirty, 3).store(large_entry); }},
      {"the last page of a span in use is marked as in use",
       [](Whole& w) { w.large[w.large->pages - 1].state = SpanState::free; }},
      {"free pages are those in the lists",
       [](Whole& w) { PageHeapTest::dirty().remove(w.dirty); }},
      {"free pages are those in the lists",
       [](Whole& w) { PageHeapTest::clean().remove(w.clean); }},
      {"pages in use are committed, and committed pages have addresses",
       [](Whole&) { PageHeapTest::committed() = PageHeapTest::top() - 1; }},
      {"pages in use are committed, and committed pages have addresses",
       [](Whole&) { PageHeapTest::committed() = std::size_t{1} << 30; }},
      {"free spans are linked in both directions", [](Whole& w) { w.dirty->previous = w.large; }},
      {"free spans are linked in both directions", [](Whole& w) { w.clean->previous = w.large; }},

      {"carved <= slab_blocks", [](Whole& w) { w.slab->carved = w.slab->slab_blocks + 1; }},
      {"used + free blocks == slab_blocks", [](Whole& w) { use_of(*w.slab).used.fetch_add(1); }},
      {"a block is free that was never taken, or is purged",
       [](Whole& w) {
         const std::uint32_t next = w.fresh->carved;
         engine::free_word_of(*w.fresh, next / 64).fetch_and(~(std::uint64_t{1} << next % 64));
       }},
      {"a slab has bits for its blocks alone",
       [](Whole& w) {
         const std::uint32_t behind = w.slab->slab_blocks;
         engine::free_word_of(*w.slab, behind / 64).fetch_or(std::uint64_t{1} << behind % 64);
       }},
      {"free blocks have their keys, if the slab says so", [](Whole& w) { w.block(50)->key = 0; }},
      {"a slab is listed, if and only if it has blocks to give",
       [](Whole& w) { use_of(*w.slab).fast_free_threshold = unlisted; }},
      {"frees of a listed slab stop at its limits",
       [](Whole& w) { use_of(*w.slab).fast_free_threshold = 0; }},
      {"each page of a slab has its owner's number and its class",
       [](Whole& w) { w.entry(w.long_slab, 1).store(0); }},
      {"each page of a slab has the slab's beginning",
       [](Whole& w) { w.map_page(w.long_slab, 1).slab_begin += 16; }},
      {"a slab has an owner", [](Whole& w) { w.entry(w.slab).store(0); }},
      {"a slab has an owner", [](Whole& w) { w.entry(w.slab).fetch_or(large_entry); }},
      {"a slab's owner exists",
       [](Whole& w) {
         w.entry(w.slab).store(engine::heap_unit * 9 | Whole::small << engine::class_shift);
       }},
      {"pending frees are of blocks that are not free",
       [](Whole& w) { engine::remote_word_of(w.fresh, 3).fetch_or(std::uint64_t{1} << 63); }},
      {"pending frees are of blocks that are not free",
       [](Whole& w) { engine::remote_word_of(w.slab, 0).fetch_or(std::uint64_t{1} << 7); }},
      {"at most as many bits are set as frees are pending",
       [](Whole& w) { w.frees().pending.fetch_sub(1); }},
      {"at most as many bits are set as frees are pending",
       [](Whole& w) { engine::remote_word_of(w.slab, 2).fetch_or(1); }},
      {"pending blocks count as used",
       [](Whole& w) {
         // All blocks are free except the pending ones, and those do not count as used.
         engine::set_keyless(*w.slab, true);
         for (std::uint32_t first = 0; first < w.slab->slab_blocks; first += 64)
           engine::free_word_of(*w.slab, first / 64)
               .store(engine::lowest_bits(w.slab->slab_blocks - first) &
                      ~engine::remote_word_of(w.slab, first / 64).load());
         use_of(*w.slab).used.store(0);
       }},

      {"a large block's first page has large_entry",
       [](Whole& w) { w.entry(w.large).store(engine::heap_unit); }},
      {"usable_pages <= pages", [](Whole& w) { w.large->usable_pages.store(w.large->pages + 1); }},
      {"a large block begins with a line of its first OS page",
       [](Whole& w) { ++w.large->sparse_limit; }},
      {"a large block begins with a line of its first OS page",
       [](Whole& w) { w.large->sparse_limit = engine::max_colour + engine::line_bytes; }},
      {"a large block's length is in the page map",
       [](Whole& w) { ++w.map_page(w.large).slab_begin; }},
      {"a large block's length is in the page map",
       [](Whole& w) {
         w.large->usable_pages.store(w.large->pages - 1);
         w.map_page(w.large).slab_begin = w.large->pages | engine::has_tail;
         w.map_page(w.large, 1).slab_begin = w.large->pages;
       }},
      {"further pages of a large block have no entry",
       [](Whole& w) { w.entry(w.large, 1).store(large_entry); }},

      {"a stack of ready slabs has its heap's", [](Whole& w) { w.other.ready.store(w.slab); }},
      {"a ready slab has pending frees", [](Whole& w) { w.heap.ready.store(w.fresh); }},
      {"a slab is ready once", [](Whole& w) { w.frees().next_ready = w.slab; }},
      {"each slab with pending frees is on its owner's stack",
       [](Whole& w) { w.heap.ready.store(nullptr); }},
      {"heaps count all slabs", [](Whole& w) { ++w.heap.slabs[w.small]; }},
      {"each listed slab is in its heap's list",
       [](Whole& w) {
         Span*& head = w.heap.partial[w.small];
         Span* const last = head->previous;
         head = head->next;
         head->previous = last;
       }},

      {"the queue has each heap that is marked as abandoned, once",
       [](Whole& w) { w.heap.is_abandoned = true; }},
      {"the queue has each heap that is marked as abandoned, once",
       [](Whole& w) { w.first_abandoned.is_abandoned = false; }},
      {"the queue has each heap that is marked as abandoned, once",
       [](Whole& w) { w.last_abandoned.next_abandoned = &w.first_abandoned; }},
      {"the queue has each heap that is marked as abandoned, once",
       [](Whole& w) {
         w.first_abandoned.next_abandoned = nullptr;
         w.last_abandoned.is_abandoned = false;
       }},
      {"pages that abandoned heaps keep are counted",
       [](Whole& w) { ++w.first_abandoned.kept_pages; }},
      {"an arena's queue has all its slabs",
       [](Whole& w) {
         ThreadHeap& arena = w.arena();
         const engine::HeapHold hold{arena};
         engine::unqueue_sparse_slab(arena, engine::queued_slab(arena.first_sparse));
       }},
      {"an arena's list has its large blocks",
       [](Whole& w) { w.entry(w.arena().large_blocks).store(0); }},
      {"an arena's list has its large blocks", [](Whole& w) { w.arena().large_blocks = w.large; }},
      {"an arena's list has its large blocks", [](Whole& w) { w.arena().large_blocks = w.slab; }},
      {"an arena's large blocks are linked in both directions",
       [](Whole& w) {
         Span* const first = w.arena().large_blocks;
         first->next->previous = first->next;
       }},
      {"each large block of an arena is in its list",
       [](Whole& w) { w.arena().large_blocks->next = nullptr; }},
      {"each large block of an arena is in its list", [](Whole& w) { w.large->arena = 1; }},
      {"the mark says whether a heap is abandoned",
       [](Whole&) { engine::any_abandoned.store(false); }},
  };
  return rows;
}

// Found by checking only `heap`.
const std::vector<Row>& heap_rows() {
  static const std::vector<Row> rows = {
      {"a cache bin's list ends", [](Whole& w) { w.bin().head->next = w.bin().head; }},
      {"a cache bin has blocks of its class",
       [](Whole& w) { w.bin().head = static_cast<Block*>(allocate(w.heap, 64)); }},
      {"a cache bin has blocks of its class",
       [](Whole& w) { w.bin().head = reinterpret_cast<Block*>(engine::memory_of(w.large)); }},
      {"a cache bin has beginnings of blocks", [](Whole& w) { w.bin().head = w.block(5) + 1; }},
      {"a block of a cache bin has its key", [](Whole& w) { w.bin().head->key = 0; }},
      {"a block of a cache bin is not free",
       [](Whole& w) { engine::set_free(*w.slab, w.number(w.bin().head)); }},
      {"a cache bin without capacity is empty", [](Whole& w) { w.heap.capacities[w.small] = 0; }},
      {"a closed cache bin has no capacity, and no sampling bin beside it",
       [](Whole& w) { w.bin().head = engine::bypassed_bin(); }},
      {"a cache bin has beginnings of blocks",
       [](Whole& w) {  // there is room for a link after the last block
         w.bin().head = reinterpret_cast<Block*>(engine::block_at(*w.slab, w.slab->slab_blocks));
       }},
      {"a cache bin's capacity is at most its class's",
       [](Whole& w) { w.heap.capacities[w.small] = 1000; }},
      {"a cache bin has capacity - capacity_left blocks",
       [](Whole& w) { --w.bin().capacity_left; }},
      {"a heap has at most so many spare lists",
       [](Whole& w) { w.heap.spare_list_count = engine::max_spare_lists + 1; }},
      {"a heap counts its spare lists by class",
       [](Whole& w) { ++w.heap.spare_lists_of[w.small]; }},
      {"the bin of spare lists has its largest capacity",
       [](Whole& w) {
         w.heap.spare_lists.size_class[0] = w.small;
         w.heap.spare_list_count = w.heap.spare_lists_of[w.small] = 1;
         --w.heap.capacities[w.small];
         --w.bin().capacity_left;
       }},
      {"no spare list comes after the last one of its class",
       [](Whole& w) {
         w.heap.spare_lists.size_class[0] = w.heap.spare_lists.size_class[1] = w.small;
         w.heap.spare_list_count = w.heap.spare_lists_of[w.small] = 2;
       }},
      {"a heap that has never sampled has no blocks in sampling bins",
       [](Whole& w) { w.heap.sampling_bins[w.small].head = w.block(0); }},
      {"a sampling bin's list ends",
       [](Whole& w) {
         engine::CacheBin& bin = w.sampling_bin();
         bin.head->next = bin.head;
       }},
      {"blocks of a sampling bin have the bin's class and their keys",
       [](Whole& w) { w.sampling_bin().head->key = 0; }},
      {"a sampling bin has sampling_capacities - capacity_left blocks",
       [](Whole& w) { w.sampling_bin().capacity_left -= 2; }},
      {"carved <= slab_blocks", [](Whole& w) { w.slab->carved = w.slab->slab_blocks + 1; }},
      {"each page of a slab has the slab's beginning",
       [](Whole& w) { w.map_page(w.long_slab, 1).slab_begin -= 16; }},
      {"a heap counts its slabs", [](Whole& w) { w.heap.slabs[w.small] = 0; }},
      {"listed slabs are linked in both directions",
       [](Whole& w) { w.heap.partial[w.small]->next->previous = w.large; }},
      {"the first slab of a list is linked to the last",
       [](Whole& w) { w.heap.partial[w.small]->previous = w.large; }},
      {"purged_blocks begin in purged OS pages", [](Whole& w) { ++w.slab->purged_blocks; }},
      {"a block is free that was never taken, or is purged",
       [](Whole& w) { w.slab->purged = 0xff; }},
      {"bypassed cache bins have capacity 0", [](Whole& w) { w.heap.bypassed_refills = 1; }},
      {"a queue of sparse slabs has its heap's",
       [](Whole& w) { w.heap.first_sparse = w.link(*w.large); }},
      {"a queue of sparse slabs has its heap's",
       [](Whole& w) { w.heap.first_sparse = w.link(*w.other.partial[w.small]); }},
      {"queued slabs are linked in both directions",
       [](Whole& w) {
         w.queue();
         w.slab->previous_sparse = w.link(*w.slab);
       }},
      {"a queue has as many pages as it counts",
       [](Whole& w) {
         w.queue();
         ++w.heap.sparse_pages;
       }},
      {"queued slabs are linked in both directions",
       [](Whole& w) {
         w.queue();
         w.fresh->next_sparse = w.link(*w.slab);  // a cycle
       }},
      {"a queue has as many pages as it counts",
       [](Whole& w) {
         w.queue();
         w.heap.last_sparse = w.link(*w.slab);
       }},
      {"a list of slabs has slabs of its class",
       [](Whole& w) { w.heap.partial[w.small]->size_class = 1; }},
      {"a list of slabs has slabs of its class",
       [](Whole& w) { w.heap.partial[w.small]->state = SpanState::large; }},
  };
  return rows;
}

// Found by checking only `other`, which has a batch of blocks of `heap`.
const std::vector<Row>& other_rows() {
  static const std::vector<Row> rows = {
      {"a batch without a slab is empty", [](Whole& w) { w.batch().slab = nullptr; }},
      {"a batch has as many bits as it counts", [](Whole& w) { ++w.batch().count; }},
      {"a batch has blocks of another heap's slab",
       [](Whole& w) { w.batch().slab = w.other.partial[w.small]; }},
      {"a batch has blocks of another heap's slab", [](Whole& w) { w.batch().slab = w.large; }},
      {"a full batch is sent",
       [](Whole& w) {
         w.batch().count = 64;
         w.batch().bits = ~std::uint64_t{0};
       }},
      {"a batch has blocks of its slab", [](Whole& w) { w.batch().word = 6; }},
  };
  return rows;
}

// Free spans apart from the page heap: `spans` has two of 5 pages and one of 100.
using BreakSpans = void (*)(FreeSpans& spans, Span* all);
struct SpansRow {
  const char* equation;
  BreakSpans breaks;
};
constexpr SpansRow spans_rows[] = {
    {"a list of free spans is marked, if and only if it is not empty",
     [](FreeSpans& spans, Span*) { FreeSpansTest::occupied(spans, 0) = 0; }},
    {"a list of free spans is marked, if and only if it is not empty",
     [](FreeSpans& spans, Span*) { FreeSpansTest::occupied(spans, 3) = 1; }},
    {"free spans are linked in both directions",
     [](FreeSpans&, Span* all) { all[0].previous = nullptr; }},
    {"a listed free span is free", [](FreeSpans&, Span* all) { all[2].state = SpanState::in_use; }},
    {"dirty and clean spans are listed apart", [](FreeSpans&, Span* all) { all[2].zeroed = true; }},
    {"a free span is in the list of its length", [](FreeSpans&, Span* all) { all[2].pages = 6; }},
    {"lists of free spans have as many pages as they count",
     [](FreeSpans& spans, Span*) { --FreeSpansTest::pages(spans); }},
    {"lists of free spans have as many pages as they count",
     [](FreeSpans& spans, Span*) { ++FreeSpansTest::pages(spans); }},
};

void expect_fault(const Fault& fault, const char* equation) {
  ASSERT_TRUE(fault) << "not found: " << equation;
  EXPECT_STREQ(fault.equation, equation);
}

Fault fault_of(ThreadHeap& heap) {
  const engine::HeapHold hold{heap};
  return engine::find_heap_fault(heap);
}

TEST(Invariants, EachEquationOfTheEngineIsFoundBroken) {
  for (const Row& row : engine_rows()) {
    SCOPED_TRACE(row.equation);
    in_child([&row] {
      Whole whole;
      expect_sound();
      expect_no_misuse();
      row.breaks(whole);
      expect_fault(engine::find_engine_fault(), row.equation);
      // From level 1 on it aborts the program.
      if constexpr (debug_level == 0) {
        EXPECT_FALSE(engine::Engine{}.is_valid());
      }
    });
  }
}

// Where OS pages are shorter than a slab, so that some of its blocks may be purged.
TEST(Invariants, ASlabWithPurgedBlocksIsUnmarked) {
  if (os::page_bytes() >= page_bytes) return;
  in_child([] {
    Whole w;
    w.slab->purged = 1;
    for (std::uint32_t i = 0; i < w.slab->carved; ++i) {
      if (!engine::is_purged(*w.slab, i)) continue;
      engine::set_free(*w.slab, i);
      ++w.slab->purged_blocks;
    }
    engine::set_keyless(*w.slab, false);
    expect_fault(fault_of(w.heap), "free blocks have their keys, if the slab says so");
  });
}

TEST(Invariants, EachEquationOfAHeapIsFoundBroken) {
  for (const Row& row : heap_rows()) {
    in_child([&row] {
      Whole whole;
      expect_sound();
      row.breaks(whole);
      expect_fault(fault_of(whole.heap), row.equation);
    });
  }
  for (const Row& row : other_rows()) {
    in_child([&row] {
      Whole whole;
      expect_sound();
      ASSERT_GT(whole.batch().count, 0U);
      row.breaks(whole);
      expect_fault(fault_of(whole.other), row.equation);
      // The engine as a whole is unsound if one of its heaps is.
      expect_fault(engine::find_engine_fault(), row.equation);
    });
  }
}

TEST(Invariants, EachEquationOfFreeSpansIsFoundBroken) {
  for (const SpansRow& row : spans_rows) {
    Span all[3];
    FreeSpans spans;
    for (const std::size_t i : {0U, 1U, 2U}) {
      all[i].pages = i == 2 ? 100 : 5;
      all[i].state = SpanState::free;
      spans.insert(&all[i]);
    }
    ASSERT_FALSE(spans.find_fault(false));
    row.breaks(spans, all);
    expect_fault(spans.find_fault(false), row.equation);
  }
}

TEST(InvariantsDeathTest, AFaultEndsTheProgramWithItsEquation) {
  in_child([] {
    Whole whole;
    const engine::HeapHold hold{whole.heap};
    engine::check_at_rest(whole.heap);
    for (int i = 0; i < 600; ++i) engine::check_slow_path(whole.heap);
    --whole.bin().capacity_left;
    EXPECT_DEATH(engine::check_at_rest(whole.heap), "capacity - capacity_left blocks");
    EXPECT_DEATH(for (int i = 0; i < 256; ++i) engine::check_slow_path(whole.heap),
                 "capacity - capacity_left blocks");
    ++whole.bin().capacity_left;
    const std::size_t committed = PageHeapTest::committed();
    PageHeapTest::committed() = PageHeapTest::top() - 1;
    EXPECT_DEATH(for (int i = 0; i < 256; ++i) engine::check_slow_path(whole.heap),
                 "pages in use are committed");
    if constexpr (debug_level >= 1) {
      EXPECT_DEATH(engine::Engine{}.is_valid(), "pages in use are committed");
    }
    PageHeapTest::committed() = committed;
    // In a single-threaded process the whole engine is checked.
    ++whole.other.slabs[Whole::small];
    for (int i = 0; i < 256; ++i) engine::check_slow_path(whole.heap);
    fake_os::answers.has_one_thread = true;
    EXPECT_DEATH(for (int i = 0; i < 256; ++i) engine::check_slow_path(whole.heap),
                 "heaps count all slabs");
  });
}

TEST(Invariants, ACountThatAForkCutOffIsForgiven) {
  in_child([] {
    Whole whole;
    --whole.bin().capacity_left;
    EXPECT_TRUE(fault_of(whole.heap));
    whole.heap.from_fork = true;
    EXPECT_FALSE(fault_of(whole.heap));
    --whole.bin().capacity_left;
    EXPECT_TRUE(fault_of(whole.heap)) << "by two it is not";
  });
}

TEST(Invariants, NoEquationIsUntested) {
  std::set<std::string> tested;
  for (const auto* rows : {&engine_rows(), &heap_rows(), &other_rows()}) {
    for (const Row& row : *rows) tested.insert(row.equation);
  }
  for (const SpansRow& row : spans_rows) tested.insert(row.equation);
  std::set<std::string> stated;
  for (const char* const folder : {"core", "features"}) {
    const auto path = std::filesystem::path{TS_SOURCE_FOLDER} / folder;
    for (const auto& file : std::filesystem::recursive_directory_iterator{path}) {
      if (!file.is_regular_file()) continue;
      std::ifstream stream{file.path()};
      const std::string text{std::istreambuf_iterator<char>{stream}, {}};
      // return {"equation", where}, or Fault{...}
      constexpr std::string_view begin = "{\"";
      for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
        const std::string before = text.substr(at < 7 ? 0 : at - 7, at < 7 ? at : 7);
        at += begin.size();
        const std::size_t end = text.find('"', at);
        if ((before == "return " || before.ends_with("Fault")) && text[end + 1] == ',')
          stated.insert(text.substr(at, end - at));
      }
    }
  }
  EXPECT_GE(stated.size(), 50U);
  EXPECT_EQ(stated, tested);
}

}  // namespace
}  // namespace ts::testing
