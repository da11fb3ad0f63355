// The next definition of a function in the search order of the dynamic loader: that of the
// allocator behind us.
//
// Why it exists: looking up a symbol may itself allocate (a failed dlsym keeps its error text). So
// the look-up must be able to serve allocations while the next allocator is not known yet: from a
// small arena of our own, whose blocks are never reused. What it refuses to do: link against a C++
// runtime. Whether the program has one, and which, is found out at run time.
#pragma once

#include <atomic>
#include <cstddef>

namespace ts {

// The functions that a shim stands before, in groups, as far as any shim has had to tell them apart.
// The order is that of the counters in the file of libtsmalloc-count.so.
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

// The allocations made on this thread while it looks a symbol up; not the program's, so no
// shim is told of them.
bool is_looking_up();
void* lookup_allocate(std::size_t size);  // zeroed, aligned to 16; null when the arena is used up
bool is_lookup_block(const void* pointer);
std::size_t lookup_block_size(const void* pointer);

// In a library, or by RTLD_NEXT or RTLD_DEFAULT; null if there is no such definition. Preserves
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
  Function* find_slow() {  // threads that come here together find the same
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
