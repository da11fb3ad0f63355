// What becomes of each call in the books; see call.h.
#include "call.h"

#include "ledger/books.h"

namespace ts {
namespace {

// The block that this thread has entered last: entered again at once, it is the same block, which
// comes out of a nested call.
constinit thread_local const void* newest = nullptr;

std::uint64_t note_handed_out_at(const void* block, std::uint64_t from, std::uint64_t to) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  // An end in the middle of a unit has marked all of it.
  constexpr std::uint64_t unit_bytes = 8;
  const std::uint64_t first = (from + unit_bytes - 1) / unit_bytes * unit_bytes;
  return first < to ? note_handed_out(begin + first, begin + to) : 0;
}

void enter(void* block, std::uint64_t bytes) {
  bool is_entered = false;
  const Block earlier = enter_block(block, {bytes, own_thread()}, is_entered);
  if (!is_entered) {
    book_untracked();
  } else if (earlier.exists() && newest == block) {
    book_correction(earlier.bytes, bytes);
    note_handed_out_at(block, earlier.bytes, bytes);
  } else {
    if (earlier.exists()) book_missed_free(earlier);
    book_allocation(bytes, note_handed_out_at(block, 0, bytes));
  }
  newest = block;
}

}  // namespace

Call::Call(Entry entry, void* block, std::size_t, std::size_t) : entry_{entry}, given_{block} {
  begin_books_if_new();
  if (given_ == nullptr) return;
  known_ = take_block(given_);
  if (newest == given_) newest = nullptr;
  if (entry_ != Entry::realloc && known_.exists()) book_free(known_);
}

void Call::finish(void* block, std::size_t bytes) {
  if (entry_ == Entry::realloc && known_.exists()) {
    finish_resize(block, bytes);
  } else if (block != nullptr) {
    enter(block, bytes);
  }
}

// Before a reallocation it is not known whether the block will move, so it is booked afterwards;
// its address was out of the books meanwhile, since another thread may already have got it.
void Call::finish_resize(void* block, std::size_t bytes) {
  const bool is_refused = block == nullptr && bytes != 0;
  if (block == given_ || is_refused) {
    bool is_entered = false;
    const std::uint64_t now_bytes = is_refused ? known_.bytes : bytes;
    enter_block(given_, {now_bytes, known_.thread}, is_entered);
    if (is_refused) return;
    book_resize(known_.bytes, now_bytes, note_handed_out_at(given_, known_.bytes, now_bytes));
    return;
  }
  book_free(known_);
  if (block != nullptr) enter(block, bytes);
}

}  // namespace ts
