// The memory of a heap: the data segment (sbrk), mappings, or a buffer of the caller's. A source
// provides chunks and takes them back. Memory to be returned to the system is only noted
// (leaving_memory.h).
//
// A chunk grows in place if the memory after it is available: always in a buffer, and in the data
// segment unless other code moved the break. Otherwise growth is a new chunk. When sbrk refuses,
// the source continues with mappings.
//
// sbrk itself is not thread-safe. All sources of the process share one lock around it. A program
// that also calls sbrk itself (as glibc's own malloc does) must not do so at the same time in
// another thread.
#pragma once

#include "base/heap_like.h"
#include "classic/chunk.h"
#include "os/mutex.h"

namespace ts::classic {

enum class SourceKind : std::uint8_t { sbrk, mmap, buffer };

struct SourceConfig {
  SourceKind kind = SourceKind::mmap;
  // The segment grows by at least this much at a time; 0 grows by exactly the missing bytes (as the
  // source reports' heaps do).
  std::size_t growth_bytes = 0;
  std::byte* buffer = nullptr;  // SourceKind::buffer only
  std::size_t buffer_bytes = 0;
};

class Source {
 public:
  constexpr explicit Source(const SourceConfig& config) noexcept : config_{config} {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Memory that joined a heap: `chunk` now ends at `end`, and [begin, end) is new. For a new chunk,
  // begin == chunk->begin(); otherwise the chunk grew in place and the old fence is just before
  // `begin`. All null if the system refused.
  struct Growth {
    Chunk* chunk;
    std::byte* begin;
    std::byte* end;
  };

  // Gets memory for a heap whose newest chunk is `last` (or null): `more_bytes` if `last` can grow
  // in place, else a chunk for a block of `block_bytes`. May return less if other code moves the
  // break meanwhile; nothing is lost, call again.
  Growth grow(std::size_t more_bytes, std::size_t block_bytes, Chunk* last) noexcept;

  // Takes back the last `bytes` of a chunk, a multiple of the page size. False, with nothing
  // changed, if they are not at the end of memory that the system can take back.
  bool shrink(Chunk* chunk, std::size_t bytes) noexcept;

  // Takes back a whole chunk, under the same condition.
  bool release(Chunk* chunk) noexcept;

  // Takes back everything, and sends it. Chunks in the middle of the data segment are kept for the
  // next source that grows there. Without a lock; no thread may be inside.
  void release_all() noexcept;

  // Sets SourceConfig::growth_bytes.
  void set_growth(std::size_t bytes) noexcept;

  // Calls visit(Chunk&) for every chunk until a call returns false; then returns false. The chunks
  // must not change meanwhile.
  template <class Visit>
  bool for_each_chunk(Visit visit) noexcept {
    for (Chunk* chunk = first_; chunk != nullptr; chunk = chunk->next) {
      if (!visit(*chunk)) return false;
    }
    return true;
  }

  // Calls `visit` for every block of every chunk; false if a call ended the walk. No thread may be
  // inside a heap of this source meanwhile.
  bool walk(BlockVisitor visit, void* argument) noexcept;

  // Whether every chunk is a sequence of whole blocks that ends at its fence, and every `previous
  // free` and footer is correct.
  bool tags_are_valid() noexcept;

  // Adds segment_bytes, grow_calls, sbrk_calls, chunks.
  void measure(HeapMeasures& measures) noexcept;

  void fork_prepare() noexcept TS_NO_ANALYSIS;
  void fork_parent() noexcept TS_NO_ANALYSIS;
  void fork_child() noexcept;

 private:
  std::byte* take_from_break(std::size_t bytes) noexcept;
  bool give_to_break(std::byte* end, std::size_t bytes) noexcept;
  std::byte* break_end() noexcept;
  Growth new_chunk(std::byte* begin, std::size_t bytes, bool from_break) noexcept;
  Growth grow_break(std::size_t more_bytes, std::size_t block_bytes, Chunk* last) noexcept;
  Growth grow_mapping(std::size_t block_bytes) noexcept;
  void unlink(Chunk* chunk) noexcept;
  void relink(Chunk* chunk) noexcept;

  SourceConfig config_;  // const after construction, except growth_bytes: lock
  Mutex lock_;
  Chunk* first_ = nullptr;       // lock
  std::size_t buffer_used_ = 0;  // lock: the buffer's break
  std::size_t segment_bytes_ = 0;
  std::size_t grow_calls_ = 0;
  std::size_t sbrk_calls_ = 0;
  std::size_t chunks_ = 0;
};

}  // namespace ts::classic
