// The policy of the classic heaps, implemented independently and naively: chunks are plain lists of
// pieces in address order, and every search scans all of them. It shares nothing with the heaps but
// the numbers that they declare, is slow, and never touches the memory that it models. If oracle
// and heap disagree about an address, one of them is wrong.
//
// The rules:
//   sizes      a tag of 8 bytes, rounded up to 16, at least 32
//   fit        among the free pieces of the caller's heap that are large enough
//   alignment  above 16: searches for alignment + 32 more, and frees what lies before and after
//   splitting  what is left is free if it is at least 32 bytes, else it goes with the block
//   merging    at once, with the free piece after it and the one before, if they have the same
//              owner; but a piece that changes owner forgets that the one before it is free, until
//              that one is freed or merged again
//   growth     by what is missing, in place if the heap's newest chunk ends at the break, else as a
//              new chunk; the kind of source decides where
//   refusal    when the system refuses to grow, chunks that are one free piece are returned, and
//              the heap tries again
//   trimming   of a piece above the threshold: see trim_after_release(); of a mapping that is one
//              free piece: whole, while more than the threshold is free in its owner's heap
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

namespace ts::oracle {

using Address = std::uintptr_t;

enum class Fit { first, best, worst };

constexpr std::size_t granule = 16;
constexpr std::size_t tag = 8;
constexpr std::size_t least_block = 32;
constexpr std::size_t chunk_header = 24;
constexpr std::size_t chunk_overhead = chunk_header + tag;
constexpr std::size_t page = 4096;
constexpr std::size_t kept_by_trim = std::size_t{1} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr std::size_t block_for(std::size_t bytes) {
  const std::size_t block = round_up(bytes + tag, granule);
  return block < least_block ? least_block : block;
}

// The system from which a modelled heap grows: it answers as the system under the real heap did.
class World {
 public:
  virtual ~World() = default;
  virtual Address break_end() = 0;
  // The old end of the break, or nothing.
  virtual std::optional<Address> grow_break(std::size_t bytes) = 0;
  virtual bool shrink_break(Address end, std::size_t bytes) = 0;
  virtual std::optional<Address> map(std::size_t bytes) = 0;
  virtual bool unmap(Address begin, std::size_t bytes) = 0;
  // One of several, in unspecified order.
  virtual bool unmap_one_of_many(Address begin, std::size_t bytes) = 0;
};

struct Piece {
  Address begin;  // including its tag
  std::size_t bytes;
  bool free;
  unsigned owner;
  bool knows_free_before;  // that the piece before it is free, and its owner's

  Address end() const { return begin + bytes; }
  Address payload() const { return begin + tag; }
};

// A contiguous part of the segment. Its last piece is the fence: no bytes, never free.
struct Chunk {
  Address begin;
  Address end;
  bool from_break;
  std::vector<Piece> pieces;

  Piece& fence() { return pieces.back(); }
};

struct Rules {
  Fit fit = Fit::best;
  bool break_first = true;       // asks the break for memory before it maps
  bool may_map = false;          // maps when there is no break, or it refuses
  bool grows_in_place = true;    // else every growth is a chunk of its own
  bool makes_room = true;        // returns free chunks when growth is refused
  bool trims_ends = true;        // returns the ends of chunks
  bool trims_mappings = true;    // returns free mappings
  std::size_t growth_bytes = 0;  // the minimum growth
  std::size_t trim_threshold = SIZE_MAX;
};

// Pieces of the data segment left behind by destroyed heaps, newest first; for the whole process.
struct LeftBehind {
  Address begin;
  std::size_t bytes;
};
inline std::list<LeftBehind>& left_behind() {
  static std::list<LeftBehind> pieces;
  return pieces;
}

// The heaps of all owners over one source.
class Heaps {
 public:
  Heaps(const Rules& rules, World& world) : rules_{rules}, world_{world} {}

  // The payload's address, or nothing if the system refuses.
  std::optional<Address> allocate(unsigned owner, std::size_t bytes, std::size_t alignment = 16) {
    const std::size_t block = block_for(bytes);
    const std::size_t search = alignment > 16 ? block + alignment + least_block : block;
    Place place = find(owner, search);
    while (!place.chunk && (grow(owner, search) || (make_room(owner) && grow(owner, search))))
      place = find(owner, search);
    if (!place.chunk) return std::nullopt;
    return take(place, block, alignment);
  }

  void release(unsigned owner, Address payload) {
    Place place = at(payload);
    Piece& piece = place.piece();
    if (piece.owner != owner) {
      piece.owner = owner;
      piece.knows_free_before = false;
    }
    place = free_piece(place);
    if (rules_.trims_ends && place.piece().bytes >= rules_.trim_threshold) {
      trim_after_release(place);
    } else if (rules_.trims_mappings && is_free_mapping(*place.chunk, owner) &&
               free_bytes(owner) >= rules_.trim_threshold) {
      give_back(*place.chunk);
    }
  }

  bool resize(unsigned owner, Address payload, std::size_t bytes) {
    const Place place = at(payload);
    const std::size_t wanted = block_for(bytes);
    if (place.piece().owner != owner) return wanted <= place.piece().bytes;
    if (wanted > place.piece().bytes) {
      const Piece& next = place.next();
      if (!next.free || next.owner != owner || place.piece().bytes + next.bytes < wanted)
        return false;
      place.piece().bytes += next.bytes;
      remove(place, place.index + 1);
      tell_next(place, false);
    }
    cut(place, wanted);
    return true;
  }

  // The real heap has returned everything: mappings in any order, pieces of the break newest first.
  void destroy() {
    for (Chunk& chunk : chunks_) {
      const std::size_t bytes = chunk.end - chunk.begin;
      if (!chunk.from_break) {
        world_.unmap_one_of_many(chunk.begin, bytes);
      } else if (chunk.end != world_.break_end() || !world_.shrink_break(chunk.end, bytes)) {
        if (rules_.may_map) left_behind().push_front({chunk.begin, bytes});
      }
    }
    chunks_.clear();
  }

  std::size_t block_bytes_at(Address payload) { return at(payload).piece().bytes; }
  // Newest first.
  const std::list<Chunk>& chunks() const { return chunks_; }

 private:
  struct Place {
    Chunk* chunk = nullptr;
    std::size_t index = 0;
    Piece& piece() const { return chunk->pieces[index]; }
    Piece& next() const { return chunk->pieces[index + 1]; }
  };

  bool is_better(const Piece& a, const Piece& b) const {
    if (rules_.fit == Fit::best && a.bytes != b.bytes) return a.bytes < b.bytes;
    if (rules_.fit == Fit::worst && a.bytes != b.bytes) return a.bytes > b.bytes;
    return a.begin < b.begin;
  }

  Place find(unsigned owner, std::size_t bytes) {
    Place best;
    for (Chunk& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk.pieces.size(); ++i) {
        const Piece& piece = chunk.pieces[i];
        if (!piece.free || piece.owner != owner || piece.bytes < bytes) continue;
        if (best.chunk == nullptr || is_better(piece, best.piece())) best = {&chunk, i};
      }
    }
    return best;
  }

  // The used piece with this payload.
  Place at(Address payload) {
    for (Chunk& chunk : chunks_) {
      if (payload < chunk.begin || payload >= chunk.end) continue;
      for (std::size_t i = 0; i < chunk.pieces.size(); ++i) {
        const Piece& piece = chunk.pieces[i];
        if (piece.payload() == payload && !piece.free && piece.bytes != 0) return {&chunk, i};
      }
    }
    throw std::logic_error("the heap handed out a block that the oracle does not have");
  }

  static void insert(const Place& place, std::size_t index, const Piece& piece) {
    auto& pieces = place.chunk->pieces;
    pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(index), piece);
  }
  static void remove(const Place& place, std::size_t index) {
    auto& pieces = place.chunk->pieces;
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // Tells the next piece whether this one is free, if both have the same owner.
  static void tell_next(const Place& place, bool is_free) {
    if (place.next().owner == place.piece().owner) place.next().knows_free_before = is_free;
  }

  // Makes a used piece free, merged with its neighbours.
  Place free_piece(Place place) {
    Piece& piece = place.piece();
    piece.free = true;
    if (place.next().free && place.next().owner == piece.owner) {
      piece.bytes += place.next().bytes;
      remove(place, place.index + 1);
    }
    if (piece.knows_free_before) {
      Piece& before = place.chunk->pieces.at(place.index - 1);
      if (!before.free || before.owner != piece.owner)
        throw std::logic_error("a piece knows of a free one that is not there");
      before.bytes += piece.bytes;
      remove(place, place.index);
      --place.index;
    }
    tell_next(place, true);
    return place;
  }

  // Cuts a used piece to `wanted` bytes if the rest can be a piece, which is then free.
  bool cut(const Place& place, std::size_t wanted) {
    Piece& piece = place.piece();
    const std::size_t rest = piece.bytes - wanted;
    if (rest < least_block) return false;
    const Piece tail{piece.begin + wanted, rest, false, piece.owner, false};
    piece.bytes = wanted;
    insert(place, place.index + 1, tail);
    free_piece({place.chunk, place.index + 1});
    return true;
  }

  // The rest of the piece before and after the block is freed like any other piece.
  Address take(Place place, std::size_t block, std::size_t alignment) {
    const Piece whole = place.piece();
    std::size_t head = 0;
    if (alignment > 16) {
      head = round_up(whole.payload(), alignment) - whole.payload();
      while (head != 0 && head < least_block) head += alignment;
    }
    place.piece().free = false;
    if (head != 0) {
      place.piece().bytes = head;
      insert(place, place.index + 1,
             {whole.begin + head, whole.bytes - head, false, whole.owner, false});
      ++place.index;
    }
    if (!cut(place, block)) tell_next(place, false);
    if (head != 0) free_piece({place.chunk, place.index - 1});
    return whole.payload() + head;
  }

  // ---- Growth ----

  bool grow(unsigned owner, std::size_t bytes) {
    Chunk* const newest = rules_.grows_in_place ? newest_[owner] : nullptr;
    std::size_t missing = bytes;
    if (newest != nullptr && newest->fence().knows_free_before) {
      const Piece& top = newest->pieces[newest->pieces.size() - 2];
      if (top.bytes < bytes) missing -= top.bytes;
    }
    if (rules_.break_first && grow_by_break(owner, missing, bytes, newest)) return true;
    if (!rules_.may_map) return false;
    const std::size_t mapped = round_up(at_least(bytes + chunk_overhead), page);
    const std::optional<Address> begin = world_.map(mapped);
    if (begin) add_chunk(owner, *begin, mapped, false);
    return begin.has_value();
  }

  std::size_t at_least(std::size_t bytes) const {
    return bytes > rules_.growth_bytes ? bytes : rules_.growth_bytes;
  }

  bool grow_by_break(unsigned owner, std::size_t missing, std::size_t bytes, Chunk* newest) {
    const Address end = world_.break_end();
    if (newest != nullptr && newest->from_break && newest->end == end) {
      const std::size_t more = round_up(at_least(missing), granule);
      const std::optional<Address> begin = world_.grow_break(more);
      if (begin == end) {
        extend(*newest, more);
        return true;
      }
      if (begin && more >= chunk_overhead + least_block + granule) {
        add_chunk(owner, *begin, more, true);
        return true;
      }
    }
    const std::size_t needed =
        std::max(bytes + chunk_overhead, chunk_overhead + least_block + granule);
    if (rules_.may_map && reuse_left_behind(owner, needed)) return true;
    const std::size_t shift = round_up(end, granule) - end;
    const std::size_t more = round_up(at_least(needed), granule) + shift;
    const std::optional<Address> begin = world_.grow_break(more);
    if (begin) add_chunk(owner, *begin, more, true);
    return begin.has_value();
  }

  bool reuse_left_behind(unsigned owner, std::size_t bytes) {
    for (auto piece = left_behind().begin(); piece != left_behind().end(); ++piece) {
      if (piece->bytes < bytes) continue;
      add_chunk(owner, piece->begin, piece->bytes, true);
      left_behind().erase(piece);
      return true;
    }
    return false;
  }

  void add_chunk(unsigned owner, Address begin, std::size_t bytes, bool from_break) {
    const Address aligned = round_up(begin, granule);
    const Address end = (begin + bytes) / granule * granule;
    chunks_.push_front({aligned, end, from_break, {}});
    Chunk& chunk = chunks_.front();
    chunk.pieces = {{aligned + chunk_header, end - aligned - chunk_overhead, false, owner, false},
                    {end - tag, 0, false, owner, false}};
    newest_[owner] = &chunk;
    free_piece({&chunk, 0});
  }

  // The fence becomes a piece, and a new fence follows it.
  void extend(Chunk& chunk, std::size_t bytes) {
    chunk.end += bytes;
    const unsigned owner = chunk.fence().owner;
    chunk.fence().bytes = bytes;
    chunk.pieces.push_back({chunk.end - tag, 0, false, owner, false});
    free_piece({&chunk, chunk.pieces.size() - 2});
  }

  static bool is_free(Chunk& chunk, unsigned owner) {
    const Piece& first = chunk.pieces.front();
    return chunk.pieces.size() == 2 && first.free && first.owner == owner &&
           chunk.fence().owner == owner;
  }
  static bool is_free_mapping(Chunk& chunk, unsigned owner) {
    return !chunk.from_break && is_free(chunk, owner);
  }

  std::size_t free_bytes(unsigned owner) const {
    std::size_t bytes = 0;
    for (const Chunk& chunk : chunks_) {
      for (const Piece& piece : chunk.pieces)
        bytes += piece.free && piece.owner == owner ? piece.bytes : 0;
    }
    return bytes;
  }

  // Returns every chunk that is one free piece of this owner, as far as the system takes it.
  bool make_room(unsigned owner) {
    if (!rules_.makes_room) return false;
    bool gave = false;
    for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
      if (!is_free(*chunk, owner) || !give_back(*chunk)) {
        ++chunk;
        continue;
      }
      gave = true;
      chunk = chunks_.begin();  // the one before it may be at the end of the segment now
    }
    return gave;
  }

  bool give_back(Chunk& chunk) {
    const std::size_t bytes = chunk.end - chunk.begin;
    if (chunk.from_break ? chunk.end != world_.break_end() || !world_.shrink_break(chunk.end, bytes)
                         : !world_.unmap(chunk.begin, bytes))
      return false;
    for (auto& [owner, newest] : newest_) {
      if (newest == &chunk) newest = nullptr;
    }
    chunks_.remove_if([&](const Chunk& other) { return &other == &chunk; });
    return true;
  }

  // ---- Trimming ----

  // A free piece at the end of a chunk is returned to the system: with its chunk, if it is all of a
  // mapped one; otherwise all of its whole pages but a mebibyte, if the chunk is its owner's
  // newest.
  void trim_after_release(const Place& place) {
    Chunk& chunk = *place.chunk;
    const unsigned owner = place.piece().owner;
    const bool is_last = place.index + 2 == chunk.pieces.size();
    if (!is_last || chunk.fence().owner != owner) return;
    if (place.index == 0 && !chunk.from_break) {
      give_back(chunk);
      return;
    }
    if (newest_[owner] != &chunk || place.piece().bytes < kept_by_trim + least_block) return;
    const std::size_t surplus = (place.piece().bytes - kept_by_trim - least_block) / page * page;
    if (surplus == 0) return;
    if (chunk.from_break
            ? chunk.end != world_.break_end() || !world_.shrink_break(chunk.end, surplus)
            : !world_.unmap(chunk.end - surplus, surplus))
      return;
    chunk.end -= surplus;
    place.piece().bytes -= surplus;
    chunk.fence().begin -= surplus;
  }

  Rules rules_;
  World& world_;
  std::list<Chunk> chunks_;
  std::map<unsigned, Chunk*> newest_;
};

}  // namespace ts::oracle
