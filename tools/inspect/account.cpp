// Walks through heaps and spans of the engine in another process; see account.h.
#include "inspect/account.h"

#include <algorithm>

#include "core/racy_read.h"
#include "inspect/list.h"
#include "inspect/page_walk.h"

namespace ts {
namespace {

using engine::PageMapEntry;
using engine::RemoteFrees;
using engine::Span;
using engine::SpanState;
using engine::ThreadHeap;

// Remote frees that the process's threads have not sent yet (core/remote_frees.h). Slabs count these
// blocks as used.
class Batches {
 public:
  // Adds those of a heap. Damaged memory may contain any numbers.
  void add(const EngineImage& image, const ThreadHeap& heap, bool is_ended) {
    for (const engine::RemoteBatch& batch : heap.batches) {
      const Span* const slab = batch.slab;
      if (batch.count == 0 || slab == nullptr) continue;
      const std::size_t page = (address_in(slab) - address_in(image.map().spans)) / sizeof(Span);
      if (page < image.page_count()) batches_.add({page, batch.count, is_ended});
    }
  }
  // Call between the last add() and the first take().
  void sort() {
    std::sort(batches_.begin(), batches_.end(),
              [](const Batch& a, const Batch& b) { return a.page < b.page; });
  }

  struct Blocks {
    std::size_t of_threads = 0;        // in batches of live threads
    std::size_t of_ended_threads = 0;  // and of ended ones
  };
  // How many belong to the slab that begins with that page. Ask for pages in ascending order.
  Blocks take(std::size_t page) {
    Blocks blocks;
    for (; next_ < batches_.count() && batches_[next_].page <= page; ++next_) {
      const Batch& batch = batches_[next_];
      if (batch.page == page)
        (batch.is_ended ? blocks.of_ended_threads : blocks.of_threads) += batch.count;
    }
    return blocks;
  }

 private:
  struct Batch {
    std::size_t page;
    std::uint32_t count;
    bool is_ended;
  };

  List<Batch> batches_;
  std::size_t next_ = 0;
};

class Walk {
 public:
  Walk(Process& process, const EngineImage& image, AccountBasis by, Account& account,
       List<MapPiece>* map)
      : process_{process},
        image_{image},
        by_{by},
        account_{account},
        map_{map},
        spans_{process, image},
        uses_{process, image} {
    heaps_.fill(image.heap_count() + std::size_t{1});
  }

  bool run() {
    if (!read_heaps() || !PageWalk{process_, image_, spans_, account_.unclear, *this}.run())
      return false;
    count_with_pending();
    // Slabs count blocks in bins and batches as used.
    for (std::size_t* const cached_part : {&account_.bins, &ended_bins_}) {
      *cached_part = std::min(*cached_part, account_.small);
      account_.small -= *cached_part;
      account_.live -= std::min(*cached_part, account_.live);
    }
    account_.ended += ended_bins_;
    take_out_placeholders();
    if (by_ == AccountBasis::kernel) {
      const std::uintptr_t base = image_.map().base;
      account_.ends +=
          process_.resident_bytes({base + image_.page_count() * engine::page_bytes,
                                   base + image_.committed_pages() * engine::page_bytes});
    }
    if (by_ == AccountBasis::kernel) {
      for (const Range& table : image_.tables()) account_.tables += process_.resident_bytes(table);
    } else {
      account_.tables = engine::table_bytes(image_.page_count(), image_.heap_count());
    }
    return read_counts();
  }

  // Called by PageWalk.
  bool visit_slab(std::size_t page, std::size_t pages, PageMapEntry entry) {
    const unsigned size_class = engine::class_of(entry);
    const std::size_t bytes = pages * engine::page_bytes;
    const Batches::Blocks in_batches = batches_.take(page);
    account_.bins += in_batches.of_threads * engine::size_classes[size_class].block_bytes;
    ended_bins_ += in_batches.of_ended_threads * engine::size_classes[size_class].block_bytes;
    const bool asks_kernel = by_ == AccountBasis::kernel;
    const std::size_t resident = asks_kernel ? resident_bytes(page, 0, bytes) : 0;
    const Span* const span = spans_.at(page, pages);
    const engine::SlabUse* const use = uses_.at(page, 1);
    if (span == nullptr || use == nullptr) return false;
    if (span->state != SpanState::slab || span->size_class != size_class || span->pages != pages) {
      account_.unclear += pages;
      return true;
    }
    const std::size_t present =
        asks_kernel ? resident : bytes - std::min(bytes, engine::purged_bytes_of(*span));
    const std::uint32_t used = use->used.load(std::memory_order_relaxed);
    const Heap* const heap = heap_of(entry);
    const Slab slab{page,
                    pages,
                    used * std::size_t{engine::size_classes[size_class].block_bytes},
                    present,
                    static_cast<std::uint8_t>(size_class),
                    heap != nullptr && heap->is_ended};
    if (heap == nullptr || !heap->has_pending) {
      count(slab, 0);
      return true;
    }
    if (with_pending_.count() == Process::max_places) count_with_pending();
    with_pending_.add(slab);
    return true;
  }

  // Nothing touches pages past the usable ones, but the system may fill a huge page.
  void visit_large(std::size_t page, std::size_t pages, std::size_t usable_pages) {
    const std::size_t bytes = pages * engine::page_bytes;
    const std::size_t usable = usable_pages * engine::page_bytes;
    ++account_.large_blocks;
    account_.live += usable;
    const bool asks_kernel = by_ == AccountBasis::kernel;
    const std::size_t resident = asks_kernel ? resident_bytes(page, 0, usable) : bytes;
    const std::size_t end = asks_kernel ? resident_bytes(page, usable, bytes) : 0;
    account_.large += resident;
    account_.ends += end;
    if (map_ != nullptr) map_->add({page, pages, resident + end, PieceKind::large, 0, false, 0});
  }

  void visit_other(std::size_t page, const Span& span) {
    const std::size_t bytes = std::size_t{span.pages} * engine::page_bytes;
    const bool is_clean = span.state == SpanState::free && is_set(&span.zeroed);
    const std::size_t resident = by_ == AccountBasis::kernel ? resident_bytes(page, 0, bytes)
                                 : is_clean                  ? 0
                                                             : bytes;
    (is_clean ? account_.ends : account_.pages) += resident;
    const auto kind = span.state == SpanState::free ? PieceKind::free : PieceKind::cached;
    if (map_ != nullptr) map_->add({page, span.pages, resident, kind, 0, false, 0});
  }

 private:
  // What is known about a heap, by its number.
  struct Heap {
    bool has_pending;  // a slab of it has pending frees
    bool is_ended;     // its thread has ended
  };
  Heap* heap_of(PageMapEntry entry) {
    const std::uint32_t number = engine::heap_number(entry);
    return number < heaps_.count() ? &heaps_[number] : nullptr;
  }

  // Untouched heaps are not read: that would give the process a page of zeros there.
  bool read_heaps() {
    const Copy<ThreadHeap> heap;
    for (std::uint32_t number = 1; number <= image_.heap_count(); ++number) {
      const std::uintptr_t address = address_in(image_.map().heaps, number);
      if (!heap.read_beginning(process_, address, engine::heap_page_bytes) ||
          (is_set(&heap->has_sampling_bins) && !heap.read(process_, address)))
        return false;
      note_heap(heap[0], heaps_[number]);
    }
    batches_.sort();
    return true;
  }

  void note_heap(const ThreadHeap& heap, Heap& noted) {
    if (engine::entry_of_heap(heap) == 0) return;  // returned
    noted.has_pending = heap.ready.load(std::memory_order_relaxed) != nullptr;
    noted.is_ended = is_set(&heap.is_abandoned);
    account_.heaps += is_arena(heap) ? 0 : 1;
    account_.ended_heaps += noted.is_ended ? 1 : 0;
    std::size_t& bins = noted.is_ended ? ended_bins_ : account_.bins;
    bins += engine::bytes_in_bins(heap.bins, heap.capacities) +
            engine::bytes_in_spare_lists(heap, is_set(&heap.has_wide_bins));
    if (is_set(&heap.has_sampling_bins))
      bins += engine::bytes_in_bins(heap.sampling_bins, heap.sampling_capacities);
    batches_.add(image_, heap, noted.is_ended);
  }

  // Blocks held by the heap profile (features/profile/stranded_bytes.h) do not belong to the
  // program.
  void take_out_placeholders() {
    const Copy<engine::Samples> samples;
    if (!samples.read(process_, image_.samples())) return;
    const std::size_t bytes = std::min<std::size_t>(samples->placeholder_bytes, account_.small);
    account_.small -= bytes;
    account_.in_slabs += bytes;
    account_.live -= std::min(bytes, account_.live);
  }

  bool read_counts() {
    const Copy<engine::PageHeap> page_heap;
    if (!page_heap.read(process_, image_.page_heap()) ||
        !process_.read(image_.given_back_bytes(), account_.given_back))
      return false;
    account_.growths = page_heap->growths();
    account_.limit = page_heap->limit_bytes();
    account_.hard_limit = page_heap->hard_limit_bytes();
    return true;
  }

  // For the part of a span from `first` to `end`, in bytes.
  std::size_t resident_bytes(std::size_t page, std::size_t first, std::size_t end) {
    const std::uintptr_t begin = image_.map().base + page * engine::page_bytes;
    const Range range{begin + first, begin + end};
    if (first == end) return 0;
    return process_.is_resident(range) ? range.bytes() : process_.resident_bytes(range);
  }

  struct Slab {
    std::size_t page;  // its first page, by number
    std::size_t pages;
    std::size_t used;     // bytes
    std::size_t present;  // likewise
    std::uint8_t size_class;
    bool is_ended;
  };

  // Reads in one call what other threads have freed in many slabs.
  void count_with_pending() {
    std::uintptr_t places[Process::max_places];
    std::uint32_t pending[Process::max_places] = {};
    for (std::size_t i = 0; i < with_pending_.count(); ++i) {
      places[i] = address_in(image_.map().remote_frees, with_pending_[i].page) +
                  offsetof(RemoteFrees, pending);
    }
    process_.read_each(places, pending, with_pending_.count());
    for (std::size_t i = 0; i < with_pending_.count(); ++i) {
      const Slab& slab = with_pending_[i];
      count(slab, pending[i] * std::size_t{engine::size_classes[slab.size_class].block_bytes});
    }
    with_pending_.clear();
  }

  void count(const Slab& slab, std::size_t pending) {
    const std::size_t used_present = std::min(slab.used, slab.present);
    const std::size_t waiting = std::min(pending, used_present);
    ++account_.slabs;
    account_.live += slab.used - std::min(pending, slab.used);
    account_.small += used_present - waiting;
    account_.waiting += waiting;
    (slab.is_ended ? account_.ended : account_.in_slabs) += slab.present - used_present;
    account_.classes[slab.size_class].slab_bytes += slab.present;
    account_.classes[slab.size_class].used_bytes += used_present;
    if (map_ == nullptr) return;
    const std::size_t blocks = (slab.used - std::min(pending, slab.used)) /
                               engine::size_classes[slab.size_class].block_bytes;
    map_->add({slab.page, slab.pages, slab.present, PieceKind::slab, slab.size_class, slab.is_ended,
               static_cast<std::uint32_t>(blocks)});
  }

  Process& process_;
  const EngineImage& image_;
  AccountBasis by_;
  Account& account_;
  List<MapPiece>* map_;
  std::size_t ended_bins_ = 0;
  Batches batches_;
  SpanWindow spans_;
  UseWindow uses_;
  List<Heap> heaps_;
  List<Slab> with_pending_;  // of heaps with pending remote frees
};

// What is resident of a mapping outside the engine's memory; the kernel may have merged the two.
std::size_t resident_bytes_outside(Process& process, const EngineImage::Ranges& engine_ranges,
                                   const Range& mapping) {
  std::size_t bytes = 0;
  std::uintptr_t at = mapping.begin;
  for (const Range& range : engine_ranges) {
    if (!range.overlaps({at, mapping.end})) continue;
    if (at < range.begin) bytes += process.resident_bytes({at, range.begin});
    at = std::max(at, process.end_of_page(range.end));
  }
  return at < mapping.end ? bytes + process.resident_bytes({at, mapping.end}) : bytes;
}

std::size_t& part_of(Account& account, const Mapping& mapping) {
  return mapping.is_shared  ? account.shared
         : mapping.is_file  ? account.files
         : mapping.is_stack ? account.stacks
         : mapping.is_heap  ? account.heap
                            : account.others;
}

// What the kernel reports about other mappings, and the shares of all.
void add_rest(Process& process, const EngineImage* image, Account& account, Account* shares) {
  EngineImage::Ranges engine_ranges{};
  if (image != nullptr) engine_ranges = image->ranges();
  double engine_share = 0;
  for (const Mapping& mapping : process) {
    if (image == nullptr || !image->has(mapping.range)) {
      part_of(account, mapping) += process.resident_bytes_of(mapping);
      if (shares != nullptr) part_of(*shares, mapping) += mapping.share_bytes;
      continue;
    }
    const std::size_t resident_outside =
        resident_bytes_outside(process, engine_ranges, mapping.range);
    account.others += resident_outside;
    if (shares == nullptr || mapping.resident_bytes == 0) continue;
    const double part = std::min(
        1.0, static_cast<double>(resident_outside) / static_cast<double>(mapping.resident_bytes));
    const auto share = static_cast<double>(mapping.share_bytes);
    shares->others += static_cast<std::size_t>(share * part);
    engine_share += share * (1 - part);
  }
  const auto in_status = [&](const char* key) {
    constexpr std::size_t bytes_per_kb = 1024;
    return static_cast<std::size_t>(std::max<std::int64_t>(process.status(key), 0)) * bytes_per_kb;
  };
  // hugetlbfs pages, which the kernel does not count as resident.
  account.files -= std::min(account.files, in_status("HugetlbPages:"));
  account.resident = account.engine() + account.outside();
  account.peak = std::max(account.resident, in_status("VmHWM:"));
  if (shares == nullptr) return;
  for (const auto part : Account::parts_of_engine) {
    const double of_engine = static_cast<double>(account.*part) /
                             static_cast<double>(std::max<std::size_t>(account.engine(), 1));
    shares->*part = static_cast<std::size_t>(engine_share * of_engine);
  }
  shares->resident = shares->engine() + shares->outside();
  shares->anonymous = process.anonymous_share();
}

}  // namespace

bool take_account(Process& process, const EngineImage* image, AccountBasis by, Account& account,
                  Extras extras) {
  account = {};
  account.pid = process.pid();
  format(account.command, sizeof account.command, "%s", process.command());
  account.threads = process.threads();
  account.has_engine = image != nullptr;
  if (extras.shares != nullptr) *extras.shares = account;
  if (image != nullptr) {
    account.mapped = image->page_count() * engine::page_bytes;
    account.base = image->map().base;
    if (!Walk{process, *image, by, account, extras.map}.run()) return false;
  }
  if (by == AccountBasis::kernel) add_rest(process, image, account, extras.shares);
  if (extras.map != nullptr)
    std::sort(extras.map->begin(), extras.map->end(),
              [](const MapPiece& a, const MapPiece& b) { return a.page < b.page; });
  return true;
}

}  // namespace ts
