// Writes the picture of a heap to a file. Consecutive pieces that look the same become one run. If
// there are too many runs, short ones are merged into cells of mixed content. Only the current run
// is kept, so a picture of any heap needs no memory.
#include "libc/counters.h"
#include "os/counting.h"

namespace ts {
namespace {

// Keeps files below about a megabyte.
constexpr std::size_t max_runs = 20'000;
// The number of cells in a larger picture.
constexpr std::size_t cells = 8'000;

struct Run {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t pieces = 0;
  std::size_t used_bytes = 0;
  MapState state = MapState::free;
  std::uint32_t owner = 0;

  std::size_t bytes() const noexcept { return end - begin; }
  // In thousandths.
  std::uint64_t used_share() const noexcept {
    return bytes() == 0 ? 0 : std::uint64_t{used_bytes} * 1000 / bytes();
  }
};

Run run_of(const MapExtent& extent) noexcept {
  return {extent.address, extent.address + extent.bytes, 1, extent.used_bytes, extent.state,
          extent.owner};
}

bool look_the_same(const Run& a, const Run& b) noexcept {
  const auto percent = [](const Run& run) { return run.used_share() / 10; };
  return a.state == b.state && a.owner == b.owner &&
         (a.state != MapState::mixed || percent(a) == percent(b));
}

// A sink receives `begin_chunk`, the runs of the chunk, `end_chunk`, and so on. This one counts
// them.
class Survey {
 public:
  void begin_chunk(std::uintptr_t) noexcept {}
  void run(const Run& run) noexcept {
    ++runs;
    bytes += run.bytes();
  }
  void end_chunk(std::size_t) noexcept {}

  std::size_t runs = 0;
  std::size_t bytes = 0;
};

class Drawing {
 public:
  explicit Drawing(os::TextFile& file) noexcept : file_{file} {}

  void begin_chunk(std::uintptr_t address) noexcept {
    is_drawn_ = runs_ < max_runs;
    is_first_run_ = true;
    if (!is_drawn_) return;
    file_.text(chunks_ == 0 ? "" : ",\n");
    file_.text("{\"address\":");
    file_.number(address);
    file_.text(",\"blocks\":[");
  }

  void run(const Run& run) noexcept {
    if (++runs_ > max_runs) return;
    file_.text(is_first_run_ ? "[" : ",[");
    is_first_run_ = false;
    file_.number(run.pieces);
    file_.text(",");
    file_.number(run.bytes());
    constexpr const char* states[] = {"used", "free", "cached", "mixed"};
    file_.text(",");
    file_.quoted(states[static_cast<std::size_t>(run.state)]);
    file_.text(",");
    file_.number(run.owner);
    file_.text(",");
    file_.number(run.used_share() / 1000);
    const std::uint64_t thousandths = run.used_share() % 1000;
    file_.text(thousandths < 10 ? ".00" : thousandths < 100 ? ".0" : ".");
    file_.number(thousandths);
    file_.text("]");
  }

  void end_chunk(std::size_t bytes) noexcept {
    ++chunks_;
    if (!is_drawn_) return;
    file_.text("],\"bytes\":");
    file_.number(bytes);
    file_.text("}");
  }

  std::uint64_t chunks() const noexcept { return chunks_; }
  bool is_truncated() const noexcept { return runs_ > max_runs; }

 private:
  os::TextFile& file_;
  std::uint64_t chunks_ = 0;
  std::size_t runs_ = 0;
  bool is_drawn_ = false;
  bool is_first_run_ = false;
};

// Turns the pieces of a walk into runs and chunks.
template <class Sink>
class RunMaker {
 public:
  // Neighbours shorter than `cell_bytes` become one run, whatever their states.
  RunMaker(Sink& sink, std::size_t cell_bytes) noexcept : sink_{sink}, cell_bytes_{cell_bytes} {}

  void add(const MapExtent& extent) noexcept {
    const Run next = run_of(extent);
    if (run_.pieces != 0 && next.begin == run_.end) {
      if (look_the_same(run_, next) || (run_.bytes() < cell_bytes_ && next.bytes() < cell_bytes_))
        return join(next);
      sink_.run(run_);
    } else {
      finish();
      chunk_begin_ = next.begin;
      sink_.begin_chunk(next.begin);
    }
    run_ = next;
  }

  void finish() noexcept {
    if (run_.pieces == 0) return;
    sink_.run(run_);
    sink_.end_chunk(run_.end - chunk_begin_);
    run_ = {};
  }

 private:
  void join(const Run& next) noexcept {
    run_.end = next.end;
    run_.pieces += next.pieces;
    run_.used_bytes += next.used_bytes;
    if (run_.state != next.state) run_.state = MapState::mixed;
  }

  Sink& sink_;
  std::size_t cell_bytes_;
  Run run_;
  std::uintptr_t chunk_begin_ = 0;
};

template <class Sink>
void walk_into(const CountedHeap& heap, Sink& sink, std::size_t cell_bytes) noexcept {
  RunMaker<Sink> maker{sink, cell_bytes};
  heap.walk_map(
      [](const MapExtent& extent, void* to) {
        static_cast<RunMaker<Sink>*>(to)->add(extent);
        return true;
      },
      &maker);
  maker.finish();
}

}  // namespace

bool write_map_file(const CountedHeap& heap, const char* label, const char* folder,
                    std::uint64_t process, std::uint64_t number) noexcept {
  Survey survey;
  walk_into(heap, survey, 0);
  os::TextFile file{folder, process};
  file.text("{\"schema\":\"tsmalloc-heap-map/1\",\"allocator\":");
  file.quoted(heap.name);
  file.text(",\"label\":");
  file.quoted(label);
  file.text(",\"chunks\":[\n");
  Drawing drawing{file};
  walk_into(heap, drawing, survey.runs > max_runs ? survey.bytes / cells : 0);
  file.text("\n],\"total_chunks\":");
  file.number(drawing.chunks());
  file.text(drawing.is_truncated() ? ",\"truncated\":true}\n" : ",\"truncated\":false}\n");
  return file.publish(number, ".map.json");
}

}  // namespace ts
