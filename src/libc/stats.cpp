#include "libc/stats.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/os.h"
#include "tsmalloc/tsmalloc.h"

namespace ts {
namespace {

enum class Kind : std::uint8_t { part, gauge, counter };

// A figure of ts_stats. Character arrays instead of pointers, which would need relocations at each
// start.
struct Figure {
  char key[17];  // in JSON; of a part also its label, else its name for Prometheus
  Kind kind;
  std::uint8_t offset;  // in ts_stats
  char meaning[60];
};

constexpr Figure figures[] = {
    {"small_blocks", Kind::part, offsetof(ts_statistics, small_bytes),
     "bytes in the program's blocks of up to 64 KiB"},
    {"large_blocks", Kind::part, offsetof(ts_statistics, large_bytes),
     "bytes in the program's larger blocks, touched or not"},
    {"bins", Kind::part, offsetof(ts_statistics, bin_bytes),
     "free, in the threads' cache bins and batches"},
    {"waiting", Kind::part, offsetof(ts_statistics, waiting_bytes),
     "freed by other threads, until the owner collects it"},
    {"free_in_slabs", Kind::part, offsetof(ts_statistics, slab_bytes),
     "free, in slabs beside blocks in use"},
    {"ended_threads", Kind::part, offsetof(ts_statistics, ended_bytes),
     "free, in slabs and bins of ended threads"},
    {"free_pages", Kind::part, offsetof(ts_statistics, page_bytes), "free pages, kept for reuse"},
    {"returned", Kind::part, offsetof(ts_statistics, returned_bytes),
     "without memory: purged, or not used yet"},
    {"mapped_bytes", Kind::gauge, offsetof(ts_statistics, mapped_bytes),
     "address space in use: the sum of these parts"},
    {"table_bytes", Kind::gauge, offsetof(ts_statistics, table_bytes),
     "bytes of the allocator's tables"},
    {"heaps", Kind::gauge, offsetof(ts_statistics, heaps),
     "heaps, one for each thread that allocated"},
    {"ended_heaps", Kind::gauge, offsetof(ts_statistics, ended_heaps),
     "of those, heaps of ended threads"},
    {"limit_bytes", Kind::gauge, offsetof(ts_statistics, limit_bytes),
     "free memory is purged before the heap passes this; 0: none"},
    {"hard_limit_bytes", Kind::gauge, offsetof(ts_statistics, hard_limit_bytes),
     "limit beyond which malloc fails; 0: none"},
    {"growths", Kind::counter, offsetof(ts_statistics, growths), "times that mapped_bytes grew"},
    {"purged_bytes", Kind::counter, offsetof(ts_statistics, purged_bytes),
     "bytes returned to the kernel so far"},
};

std::size_t value_of(const ts_statistics& stats, const Figure& figure) noexcept {
  std::size_t value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(&stats) + figure.offset, sizeof value);
  return value;
}

ts_statistics stats_of(const HeapMeasures& m) noexcept {
  ts_statistics stats = {};
  stats.mapped_bytes = m.segment_bytes;
  stats.large_bytes = m.large_bytes;
  stats.small_bytes = m.segment_bytes - m.free_bytes - m.waiting_bytes - m.large_bytes;
  stats.bin_bytes = m.cached_bytes;
  stats.waiting_bytes = m.waiting_bytes;
  stats.slab_bytes = m.slab_bytes;
  stats.ended_bytes = m.ended_bytes;
  stats.page_bytes = m.page_bytes();
  stats.returned_bytes = m.returned_bytes;
  stats.table_bytes = m.table_bytes;
  stats.heaps = m.heaps;
  stats.ended_heaps = m.ended_heaps;
  stats.growths = m.grow_calls;
  stats.purged_bytes = m.purged_bytes;
  stats.limit_bytes = m.limit_bytes;
  stats.hard_limit_bytes = m.hard_limit_bytes;
  return stats;
}

void format_text(const ts_statistics& stats, os::Text& text) noexcept {
  constexpr std::size_t width = 15;
  for (const Figure& figure : figures) {
    text.number(value_of(stats, figure), width);
    text.text("  ");
    text.text(figure.meaning);
    text.text("\n");
  }
}

void format_json(const ts_statistics& stats, os::Text& text) noexcept {
  text.text("{\"schema\":\"tsmalloc-stats/1\"");
  for (const Figure& figure : figures) {
    text.text(",\"");
    text.text(figure.key);
    text.text("\":");
    text.number(value_of(stats, figure));
  }
  text.text("}\n");
}

void format_prometheus(const ts_statistics& stats, os::Text& text) noexcept {
  constexpr char head_of_parts[] =
      "# HELP tsmalloc_bytes Address space in use, by what it is for.\n"
      "# TYPE tsmalloc_bytes gauge\n";
  text.text(head_of_parts);
  for (const Figure& figure : figures) {
    if (figure.kind == Kind::part) {
      text.text("tsmalloc_bytes{part=\"");
      text.text(figure.key);
      text.text("\"} ");
    } else {
      const char* const behind = figure.kind == Kind::counter ? "_total" : "";
      const auto name = [&](const char* before) {
        text.text(before);
        text.text(figure.key);
        text.text(behind);
        text.text(" ");
      };
      name("# HELP tsmalloc_");
      text.text(figure.meaning);
      text.text("\n");
      name("# TYPE tsmalloc_");
      text.text(figure.kind == Kind::counter ? "counter\n" : "gauge\n");
      name("tsmalloc_");
    }
    text.number(value_of(stats, figure));
    text.text("\n");
  }
}

}  // namespace

void fill_stats(const HeapMeasures& measures, ts_statistics* statistics,
                std::size_t bytes) noexcept {
  const ts_statistics filled = stats_of(measures);
  std::memset(statistics, 0, bytes);
  std::memcpy(statistics, &filled, std::min(bytes, sizeof filled));
}

void format_stats(const HeapMeasures& measures, os::Text& text) noexcept {
  format_text(stats_of(measures), text);
}

int write_stats(const HeapMeasures& measures, int descriptor, int format) noexcept {
  char bytes[max_stats_text];
  os::Text text{bytes, sizeof bytes};
  const ts_statistics stats = stats_of(measures);
  switch (format) {
    case TSMALLOC_TEXT:
      format_text(stats, text);
      break;
    case TSMALLOC_JSON:
      format_json(stats, text);
      break;
    case TSMALLOC_PROMETHEUS:
      format_prometheus(stats, text);
      break;
    default:
      return EINVAL;
  }
  return os::write(descriptor, text.begin(), text.length());
}

}  // namespace ts
