// The next definition of a function in the dynamic loader's search order: that of the allocator
// after a shim.
//
// Looking up a symbol may itself allocate (a failed dlsym keeps its error text), so while a thread
// looks one up, its allocations come from a small arena. Nothing here is linked against a C++
// run-time library: whether the program has one is determined at run time.
#pragma once

#include <atomic>
#include <cstddef>

namespace ts {

// The functions that a shim interposes, as far as shims distinguish them, in the order of the
// tracker's file.
enum class Entry : unsigned {
  malloc,
  calloc,
  realloc,
  free,
  aligned,  // memalign, aligned_alloc, posix_memalign, valloc, pvalloc
  operator_new,
  operator_delete,
  count
};

// Allocations that this thread makes while it looks up a symbol. They do not belong to the program,
// and their blocks are never reused.
bool is_looking_up();
void* lookup_allocate(std::size_t size);  // zeroed, aligned to 16; null if the arena is used up
bool is_lookup_block(const void* pointer);
std::size_t lookup_block_size(const void* pointer);

// Searches a library, or RTLD_NEXT or RTLD_DEFAULT; null if there is no such definition. Preserves
// errno.
void* look_up(void* library, const char* symbol);
void* look_up_next(const char* symbol);

void* address_of_next_malloc();

// Constant-initialised, so that it works before any constructor has run.
template <class Function>
class Next {
 public:
  explicit constexpr Next(const char* symbol, Function* fallback = nullptr)
      : symbol_{symbol}, fallback_{fallback} {}

  Function* get() {
    Function* const found = function_.load(std::memory_order_relaxed);
    return found != nullptr ? found : find_slow();
  }

 private:
  Function* find_slow() {  // concurrent threads find the same
    auto* found = reinterpret_cast<Function*>(look_up_next(symbol_));
    if (found == nullptr) found = fallback_;
    function_.store(found, std::memory_order_relaxed);
    return found;
  }

  const char* symbol_;
  Function* fallback_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace ts
