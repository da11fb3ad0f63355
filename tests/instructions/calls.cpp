// Calls of the malloc family whose paths are determined by the preceding calls, for count.py, which
// has callgrind count inside the functions case_*, separately for each call. Same calls, same
// counts.
#include <malloc.h>
#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>

#include "tsmalloc/arena.h"

// One call in a function of its own, which is not a tail call (CMakeLists.txt), so that callgrind
// sees both.
#define CASE(name, result, parameters, call)                                                \
  extern "C" [[gnu::noinline,                                                               \
               gnu::optimize("no-optimize-sibling-calls")]] result case_##name parameters { \
    return call;                                                                            \
  }

CASE(malloc, void*, (std::size_t bytes), std::malloc(bytes))
CASE(malloc_coarse, void*, (std::size_t bytes), std::malloc(bytes))
CASE(free, void, (void* p), std::free(p))
CASE(new, void*, (std::size_t bytes), ::operator new(bytes))
CASE(delete, void, (void* p), ::operator delete(p))
CASE(delete_sized, void, (void* p, std::size_t bytes), ::operator delete(p, bytes))
CASE(calloc, void*, (std::size_t bytes), std::calloc(1, bytes))
CASE(aligned_alloc, void*, (std::size_t bytes), std::aligned_alloc(64, bytes))
CASE(usable_size, std::size_t, (void* p), malloc_usable_size(p))
CASE(realloc_in_place, void*, (void* p, std::size_t bytes), std::realloc(p, bytes))
CASE(realloc_moves, void*, (void* p, std::size_t bytes), std::realloc(p, bytes))
CASE(put_aside, void, (void* p), std::free(p))
CASE(take_list, void*, (std::size_t bytes), std::malloc(bytes))
CASE(carve, void*, (std::size_t bytes), std::malloc(bytes))
CASE(overflow, void, (void* p), std::free(p))
CASE(list, void*, (std::size_t bytes), std::malloc(bytes))
CASE(retire, void, (void* p), std::free(p))
CASE(remote_batch, void, (void* p), std::free(p))
CASE(remote_stays, void, (void* p), std::free(p))
CASE(collect, void*, (std::size_t bytes), std::malloc(bytes))
CASE(malloc_large, void*, (std::size_t bytes), std::malloc(bytes))
CASE(realloc_large, void*, (void* p, std::size_t bytes), std::realloc(p, bytes))
CASE(free_large, void, (void* p), std::free(p))
CASE(scope_enter, int, (ts_arena * arena), ts_scope_enter(arena))
CASE(scope_leave, int, (), ts_scope_leave())
CASE(arena_malloc, void*, (ts_arena * arena, std::size_t bytes), ts_arena_malloc(arena, bytes))
CASE(arena_free, void, (void* p), std::free(p))

namespace {

// What the numbers depend on: compiler, machine, and whether functions begin with a landing pad.
#define TEXT_OF(macro) TEXT(macro)
#define TEXT(tokens) #tokens
constexpr char compiler[] =
#if defined __clang__
    "clang-" TEXT_OF(__clang_major__)
#else
    "gcc-" TEXT_OF(__GNUC__)
#endif
#if defined __x86_64__
        "-x86_64"
#elif defined __aarch64__
        "-aarch64"
#elif defined __riscv
    "-riscv64"
#else
    "-other"
#endif
#if defined __CET__ || defined __ARM_FEATURE_BTI_DEFAULT
        "-landing-pads"
#endif
    ;

// Many blocks of each of these sizes share a one-page slab. Each size is used once, so that its
// class is fresh.
constexpr std::size_t list_bytes = 200;
constexpr std::size_t burst_bytes = 160;
constexpr std::size_t remote_bytes = 100;
constexpr std::size_t line_bytes =
    256;  // blocks share no cache line, and stay in the freeing thread's bin

constexpr std::size_t series = 1200;  // several bins full, several slabs
using Series = std::array<void*, series>;

void fill(Series& blocks, std::size_t bytes) {
  for (void*& block : blocks) block = std::malloc(bytes);
}

// Blocks from the cache bin and back. The first round binds symbols and fills bins.
void calls_on_the_fast_path() {
  constexpr std::size_t bytes = 50;
  for (int round = 0; round < 3; ++round) {
    case_free(case_malloc(bytes));
    std::free(case_malloc_coarse(2000));
    case_delete(case_new(bytes));
    case_delete_sized(::operator new(bytes), bytes);
    std::free(case_calloc(bytes));
    std::free(case_aligned_alloc(bytes));
    void* p = std::malloc(bytes);
    case_usable_size(p);
    p = case_realloc_in_place(p, bytes - 10);
    std::free(case_realloc_moves(p, 10 * bytes));
  }
}

// A burst of blocks, whose lists are set aside.
void burst_with_lists() {
  static Series blocks;
  for (void*& block : blocks) block = case_carve(list_bytes);
  for (void* block : blocks) case_put_aside(block);
  for (void*& block : blocks) block = case_take_list(list_bytes);
  for (void* block : blocks) std::free(block);
}

// After a burst that is too large for lists, the next one uses none. Half of each slab is freed and
// allocated again, then all of it is freed.
void burst_without_lists() {
  static Series blocks;
  fill(blocks, 1000);
  for (void* block : blocks) std::free(block);
  fill(blocks, burst_bytes);
  for (std::size_t i = 0; i < series; i += 2) case_overflow(blocks[i]);
  for (std::size_t i = 0; i < series; i += 2) blocks[i] = case_list(burst_bytes);
  for (void* block : blocks) case_retire(block);
}

struct Remote {
  Series in_batches;
  Series staying;
};

void* free_remotely(void* argument) {
  const auto& remote = *static_cast<const Remote*>(argument);
  std::free(std::malloc(line_bytes));  // so that the thread has a heap, and uses this class
  for (void* block : remote.in_batches) case_remote_batch(block);
  for (void* block : remote.staying) case_remote_stays(block);
  return nullptr;
}

// Blocks that another thread frees, and that their owner collects.
void frees_of_another_thread() {
  static Remote remote;
  fill(remote.in_batches, remote_bytes);
  fill(remote.staying, line_bytes);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, free_remotely, &remote) != 0 ||
      pthread_join(thread, nullptr) != 0) {
    std::fputs("calls: no thread can be had\n", stderr);
    std::exit(1);
  }
  for (void*& block : remote.in_batches) block = case_collect(remote_bytes);
  for (void* block : remote.in_batches) std::free(block);
}

void large_blocks() {
  for (int round = 0; round < 3; ++round) {
    case_free_large(case_realloc_large(case_malloc_large(1'000'000), 990'000));
  }
}

void scopes() {
  ts_arena* const arena = ts_arena_create();
  for (int round = 0; round < 5; ++round) {
    case_scope_enter(arena);
    case_scope_leave();
    case_arena_free(case_arena_malloc(arena, 100));
  }
  ts_arena_destroy(arena);
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::string_view{arguments[1]} == "--compiler") {
    std::puts(compiler);
    return 0;
  }
  calls_on_the_fast_path();
  burst_with_lists();
  frees_of_another_thread();
  large_blocks();
  scopes();
  burst_without_lists();
}
