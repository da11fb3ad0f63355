// Stresses realloc: sixteen texts grow in turns by pieces of 1 to 128 bytes, are dropped once they
// have reached their length, and start again. `vectors` requests half as much again when a text is
// full, and lengths are from 1 KB to 32 MB. So blocks of all sizes grow next to each other, and
// large ones can grow by remapping instead of copying. `exact` requests just what each piece needs,
// and lengths are from 256 B to 32 KB; it leaves out larger texts, where copying at every piece
// would make the time quadratic. An operation is a piece; every byte of a text is written, and one
// in each page is read at the end.
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t most_piece_bytes = 128;
constexpr std::size_t first_capacity = 16;

class Text {
 public:
  void begin(std::size_t most_bytes, unsigned char mark, bool exact) {
    most_ = most_bytes;
    mark_ = mark;
    exact_ = exact;
  }

  void append(std::size_t bytes) {
    if (used_ + bytes > capacity_) grow(used_ + bytes);
    std::memset(bytes_ + used_, mark_, bytes);
    used_ += bytes;
    if (used_ >= most_) drop();
  }

  void drop() {
    if (bytes_ == nullptr) return;
    for (std::size_t at = 0; at < used_; at += touched_page_bytes) require(at);
    require(used_ - 1);
    std::free(bytes_);
    bytes_ = nullptr;
    used_ = capacity_ = 0;
  }

 private:
  void grow(std::size_t needed) {
    std::size_t capacity = needed;
    if (!exact_) {
      capacity = capacity_ == 0 ? first_capacity : capacity_ + capacity_ / 2;
      if (capacity < needed) capacity = needed;
    }
    auto* const moved = static_cast<unsigned char*>(std::realloc(bytes_, capacity));
    if (moved == nullptr) fail("realloc returned null");
    bytes_ = moved;
    capacity_ = capacity;
    if (used_ != 0) {
      require(0);
      require(used_ - 1);
    }
  }
  void require(std::size_t at) const {
    if (bytes_[at] != mark_) fail("realloc lost content");
  }

  unsigned char* bytes_ = nullptr;
  std::size_t used_ = 0;
  std::size_t capacity_ = 0;
  std::size_t most_ = 0;
  unsigned char mark_ = 0;
  bool exact_ = false;
};

constexpr std::size_t text_count = 16;
constinit Text texts[text_count];

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Texts grow in turns, by realloc."};
  const std::size_t operations = positive(arguments, "operations", 8'000'000, "in all");
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes of pieces");
  const char* const kind = arguments.word("vectors|exact");
  arguments.finish();
  const bool exact = kind != nullptr && std::strcmp(kind, "exact") == 0;
  if (kind == nullptr || (!exact && std::strcmp(kind, "vectors") != 0))
    arguments.fail("needs a way to grow, not", kind == nullptr ? "" : kind);

  for (std::size_t i = 0; i < text_count; ++i) {
    const std::size_t most_bytes = exact ? std::size_t{256} << i / 2 : std::size_t{1024} << i;
    texts[i].begin(most_bytes, mark_of(i), exact);
  }
  Random random{seed};
  const Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i)
    texts[i % text_count].append(1 + pick(random, most_piece_bytes));
  report(operations, watch.seconds());
  for (Text& text : texts) text.drop();
  return 0;
}
