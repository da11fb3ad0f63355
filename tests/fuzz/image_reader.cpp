// Changes the memory of a process with the engine in any way: what `tsmalloc explain` and `stats`
// read of it (tools/inspect) leads to a report or to none, within bounds.
//
// The process is the fuzzer itself: its engine has live and free blocks of many sizes. An input
// says which bytes the reader sees changed, which memory it cannot read, and which pages are
// resident.
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "inspect/account.h"

namespace ts {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

// Memory that exists: the segments of this program, and the engine's tables.
std::vector<Range> memory;

struct Change {
  std::uintptr_t address;
  std::uint8_t value;
};
std::vector<Change> changes;
std::size_t reads_left = 0;  // then the process has exited
std::uint8_t residency = 0;  // how many 255ths of each range are resident

// The engine of this program, with blocks of all classes and some large ones, half of them free.
void use_engine() {
  static engine::Engine heap;
  std::vector<void*> blocks;
  for (std::size_t bytes = 16; bytes < 200'000; bytes += 16 + bytes / 16) {
    for (int i = 0; i < 20; ++i) blocks.push_back(heap.allocate(bytes, min_alignment));
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    require(blocks[i] != nullptr, "there is memory");
    heap.release(blocks[i]);
  }
}

int add_segments(dl_phdr_info* info, std::size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    memory.push_back({begin, begin + segment.p_memsz});
  }
  return 1;  // of the first object, the program
}

void add_table(const void* begin, std::size_t bytes) {
  memory.push_back({address_in(begin), address_in(begin) + bytes});
}

void note_memory() {
  use_engine();
  dl_iterate_phdr(add_segments, nullptr);
  const engine::PageMap& map = engine::page_map;
  const std::size_t pages = map.page_count.load(std::memory_order_relaxed);
  const std::size_t heaps = map.heap_count.load(std::memory_order_relaxed) + std::size_t{1};
  add_table(map.pages, pages * sizeof *map.pages);
  add_table(map.spans, pages * sizeof *map.spans);
  add_table(map.uses, pages * sizeof *map.uses);
  add_table(map.remote_frees, pages * sizeof *map.remote_frees);
  add_table(map.heaps, heaps * sizeof *map.heaps);
}

// Places where a change matters most: fields that the reader follows.
std::uintptr_t place(fuzz::Input& input) {
  const engine::PageMap& map = engine::page_map;
  const std::size_t pages = map.page_count.load(std::memory_order_relaxed);
  const std::size_t page = input.below(pages);
  switch (input.below(9)) {
    case 0:
      return address_in(&map) + input.below(sizeof map);
    case 1:
      return address_in(&engine::page_heap) + input.below(sizeof engine::page_heap);
    case 2:
    case 3:
      return address_in(map.spans + page) + input.below(sizeof *map.spans);
    case 4:
      return address_in(map.pages + page) + input.below(sizeof *map.pages);
    case 5:
      return address_in(map.remote_frees + page) + input.below(sizeof *map.remote_frees);
    case 6:
      return address_in(map.uses + page) + input.below(sizeof *map.uses);
    case 7:
      return address_in(map.heaps + 1) + input.below(sizeof *map.heaps);
    default:
      return memory[0].begin + input.below(4096);  // headers, and the note
  }
}

// Each part counts used pages, and no page counts twice.
void check(const Account& account, std::size_t mapped) {
  const std::size_t parts[] = {account.small,    account.large, account.bins,  account.waiting,
                               account.in_slabs, account.ended, account.pages, account.ends};
  std::size_t sum = 0;
  for (const std::size_t part : parts) {
    require(part <= mapped, "a part is within the pages in use");
    sum += part;
  }
  require(sum <= mapped, "the parts are within the pages in use");
}

// Including what AddressSanitizer puts between variables.
__attribute__((no_sanitize("address"))) void copy_any(std::uintptr_t from, void* to,
                                                      std::size_t bytes) {
  const auto* const begin = reinterpret_cast<const volatile std::uint8_t*>(from);
  for (std::size_t i = 0; i < bytes; ++i) static_cast<volatile std::uint8_t*>(to)[i] = begin[i];
}

unsigned long accounts = 0;
unsigned long refusals = 0;

}  // namespace

// ---- the process, in place of tools/inspect/process.cpp ----

const char* tool_name() { return "image_reader"; }

Process::~Process() = default;

int Process::open(Residency) {
  for (const Range& range : memory) {
    Mapping& mapping = mappings_.add({});
    mapping.range = range;
    mapping.is_file = mapping.begins_file = &range == memory.data();
  }
  if (residency == 255) regions_[region_count_++] = {0, UINTPTR_MAX};
  return 0;
}

bool Process::read(std::uintptr_t address, void* to, std::size_t bytes) const {
  if (reads_left == 0) return false;
  --reads_left;
  const bool is_there = std::any_of(memory.begin(), memory.end(), [=](const Range& range) {
    return address >= range.begin && address <= range.end && bytes <= range.end - address;
  });
  if (!is_there) return false;
  copy_any(address, to, bytes);
  for (const Change& change : changes) {
    const std::size_t offset = change.address - address;
    if (offset < bytes) static_cast<std::uint8_t*>(to)[offset] = change.value;
  }
  return true;
}

void Process::read_each(const std::uintptr_t* places, std::uint32_t* numbers,
                        std::size_t count) const {
  for (std::size_t i = 0; i < count && read(places[i], numbers[i]);) ++i;
}

std::size_t Process::resident_bytes(const Range& range) {
  return range.end < range.begin ? 0 : range.bytes() / 255 * residency;
}
std::size_t Process::resident_bytes_of(const Mapping& mapping) {
  return resident_bytes(mapping.range);
}
std::uintptr_t Process::end_of_page(std::uintptr_t address) {
  return (address + 4095) / 4096 * 4096;
}
std::int64_t Process::status(const char*) const { return residency - 1; }

std::size_t Process::anonymous_share() const { return 0; }

}  // namespace ts

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ts::note_memory();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ts;
  fuzz::Input input{data, size};
  residency = input.byte();
  constexpr std::size_t enough_reads = 200'000;
  const std::uint8_t limit = input.byte();
  reads_left = limit < 128 ? enough_reads : limit - 127U;
  changes.clear();
  while (!input.is_empty() && changes.size() < 200) {
    const std::uintptr_t address = place(input);
    // As many bytes as a field has, or one.
    const std::size_t count = input.below(2) == 0 ? 1 : 8;
    for (std::size_t i = 0; i < count; ++i) changes.push_back({address + i, input.byte()});
  }
  Process process{1};
  process.open(Process::Residency::read);
  EngineImage image;
  const EngineStatus found = image.find(process);
  static Account account;
  bool is_read = found == EngineStatus::engine;
  for (const AccountBasis by : {AccountBasis::tables, AccountBasis::kernel}) {
    is_read = is_read && take_account(process, &image, by, account);
    if (is_read) check(account, image.committed_pages() * engine::page_bytes);
  }
  ++(is_read ? accounts : refusals);
  return 0;
}

bool ts::fuzz::report_totals() {
  std::printf("%lu accounts, %lu refusals\n", accounts, refusals);
  return accounts != 0 && refusals != 0;
}
