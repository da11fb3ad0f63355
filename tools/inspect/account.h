// Where a process's resident memory is: by the engine's tables if it has one, and by the kernel's
// mappings. It is read while threads run: each figure was true at some moment, and together they
// are exact for a process at rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inspect/engine_image.h"
#include "inspect/list.h"

namespace ts {

// In bytes. The engine's parts are resident memory, unless the account is made by tables only.
struct Account {
  pid_t pid = 0;
  char command[64] = "";
  bool has_engine = false;
  std::size_t threads = 0;
  std::size_t resident = 0;  // of the whole process: the sum of the parts below
  // The engine's memory
  std::size_t small = 0;    // the program's blocks in slabs
  std::size_t large = 0;    // and its large blocks
  std::size_t bins = 0;     // in threads' cache bins and batches
  std::size_t waiting = 0;  // freed by other threads, not collected yet
  std::size_t in_slabs = 0;
  std::size_t ended = 0;  // free, in slabs and bins of abandoned heaps
  std::size_t pages = 0;  // free spans, and span caches
  std::size_t ends = 0;   // of huge pages: memory that no block has touched
  std::size_t tables = 0;
  // Outside the engine
  std::size_t heap = 0;  // that brk() extends
  std::size_t files = 0;
  std::size_t stacks = 0;
  std::size_t shared = 0;  // memory, not files
  std::size_t others = 0;
  // Not part of this memory
  std::size_t peak = 0;       // of `resident`, from the kernel
  std::size_t anonymous = 0;  // only with shares: anonymous; what a cgroup counts as `anon`
  std::size_t pinned = 0;     // from a heap profile, as in StrandedSites
  std::size_t mapped = 0;     // the engine's address space, from there on:
  std::uintptr_t base = 0;
  std::size_t heaps = 0;
  std::size_t ended_heaps = 0;
  std::size_t live = 0;   // bytes of blocks of the program, resident or not
  std::size_t slabs = 0;  // how many
  std::size_t large_blocks = 0;
  std::size_t unclear = 0;     // pages that changed owner while they were read
  std::size_t given_back = 0;  // bytes, since the start
  std::size_t growths = 0;     // since the start
  std::size_t limit = 0;       // in effect, as in HeapMeasures
  std::size_t hard_limit = 0;
  struct Class {
    std::size_t slab_bytes = 0;  // resident
    std::size_t used_bytes = 0;
  } classes[engine::class_count];

  std::size_t program() const { return small + large; }
  std::size_t free() const { return bins + waiting + in_slabs + ended + pages + ends; }
  std::size_t engine() const { return program() + free() + tables; }
  std::size_t outside() const { return heap + files + stacks + shared + others; }
  static constexpr std::size_t Account::*parts_of_engine[] = {
      &Account::small, &Account::large, &Account::bins, &Account::waiting, &Account::in_slabs,
      &Account::ended, &Account::pages, &Account::ends, &Account::tables};
};

// A piece of the engine's memory, for a map.
enum class PieceKind : std::uint8_t { slab, large, free, cached };
struct MapPiece {
  std::size_t page;  // its first page, by number
  std::size_t pages;
  std::size_t resident;  // bytes
  PieceKind kind;
  // For a slab
  std::uint8_t size_class;
  bool is_ended;       // its owner's thread
  std::uint32_t used;  // blocks, also those in cache bins
  std::uint32_t blocks() const {
    return static_cast<std::uint32_t>(pages * engine::page_bytes /
                                      engine::size_classes[size_class].block_bytes);
  }
  // At most a quarter of its blocks is used, as in sparse_limit_of().
  bool is_sparse() const { return kind == PieceKind::slab && used * 4 <= blocks(); }
};

// Which source decides how much of the engine's memory counts.
enum class AccountBasis : std::uint8_t {
  kernel,  // resident memory
  tables,  // memory not purged by the engine: needs no page queries, and matches ts_stats
};

// What else take_account() should fill in.
struct Extras {
  // Reports proportional set sizes, which split shared pages among the processes that share them;
  // the process must be opened with Residency::shares. The kernel knows those only for mappings, so
  // they are divided proportionally among the parts of the engine's memory.
  Account* shares = nullptr;
  List<MapPiece>* map = nullptr;  // by address
};

// Fills an account; without an image, from the kernel only. False if the process has ended, or its
// memory is damaged.
bool take_account(Process& process, const EngineImage* image, AccountBasis by, Account& account,
                  Extras extras = {});

}  // namespace ts
