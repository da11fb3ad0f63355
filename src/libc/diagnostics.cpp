// Translates a heap's statistics for glibc's reporting functions. A number that the heap does not
// measure is 0 in a struct and absent in text.
#include "libc/diagnostics.h"

#include <cerrno>
#include <climits>

#include "libc/stats.h"
#include "os/cancellation.h"

namespace ts {
namespace {

// mallopt(3), on 64-bit machines.
constexpr int max_mxfast = 80 * sizeof(std::size_t) / 4;
constexpr int max_mmap_threshold = sizeof(long) * 4 * 1024 * 1024;

int saturated(std::size_t n) noexcept { return n > INT_MAX ? INT_MAX : static_cast<int>(n); }

}  // namespace

struct mallinfo2 mallinfo2_of(const HeapMeasures& measures) noexcept {
  struct mallinfo2 info = {};
  info.arena = measures.segment_bytes;
  info.ordblks = measures.free_blocks;
  info.fsmblks = measures.cached_bytes;  // glibc's fastbins are free blocks kept aside, too
  info.fordblks = measures.free_bytes + measures.waiting_bytes;
  info.uordblks = measures.segment_bytes - info.fordblks;
  return info;
}

struct mallinfo mallinfo_of(const HeapMeasures& measures) noexcept {
  const struct mallinfo2 wide = mallinfo2_of(measures);
  struct mallinfo info = {};
  info.arena = saturated(wide.arena);
  info.ordblks = saturated(wide.ordblks);
  info.fsmblks = saturated(wide.fsmblks);
  info.uordblks = saturated(wide.uordblks);
  info.fordblks = saturated(wide.fordblks);
  return info;
}

int write_malloc_info(const HeapMeasures& measures, int options, std::FILE* stream) noexcept {
  if (options != 0) return EINVAL;
  const os::CancellationDisabled completes_it;
  const int written =
      std::fprintf(stream,
                   "<malloc version=\"1\">\n"
                   "<total type=\"cached\" size=\"%zu\"/>\n"
                   "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
                   "<system type=\"current\" size=\"%zu\" chunks=\"%zu\"/>\n"
                   "<growth calls=\"%zu\" sbrk=\"%zu\"/>\n"
                   "<heaps count=\"%zu\"/>\n",
                   measures.cached_bytes, measures.free_blocks,
                   measures.free_bytes - measures.cached_bytes, measures.segment_bytes,
                   measures.chunks, measures.grow_calls, measures.sbrk_calls, measures.heaps);
  if (written < 0) return EIO;
  if (measures.table_bytes == 0) return std::fprintf(stream, "%s", "</malloc>\n") < 0 ? EIO : 0;
  const int more =
      std::fprintf(stream,
                   "<total type=\"waiting\" size=\"%zu\"/>\n"
                   "<total type=\"in slabs\" size=\"%zu\"/>\n"
                   "<total type=\"of ended threads\" size=\"%zu\"/>\n"
                   "<total type=\"in spans\" size=\"%zu\"/>\n"
                   "<total type=\"returned\" size=\"%zu\"/>\n"
                   "<tables size=\"%zu\"/>\n"
                   "</malloc>\n",
                   measures.waiting_bytes, measures.slab_bytes, measures.ended_bytes,
                   measures.page_bytes(), measures.returned_bytes, measures.table_bytes);
  return more < 0 ? EIO : 0;
}

void write_malloc_stats(const HeapMeasures& measures) noexcept {
  const os::CancellationDisabled completes_it;
  char bytes[max_stats_text];
  os::Text text{bytes, sizeof bytes};
  format_stats(measures, text);
  // Not fprintf, which uses 8 KiB of stack for an unbuffered stream: too much for the smallest
  // stacks.
  (void)std::fwrite(text.begin(), 1, text.length(), stderr);
}

int accept_mallopt(int parameter, int value) noexcept {
  switch (parameter) {
    // Hints about when to cache, map, trim, grow or spread, which affect speed but not behaviour.
    // Only M_TOP_PAD has an effect, in heaps that grow by the break.
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_MAX:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
    // No effect in glibc either: the first since 2.26, the others ever since SVID's malloc.
    case M_CHECK_ACTION:
    case M_NLBLKS:
    case M_GRAIN:
    case M_KEEP:
      return 1;
    // Also hints; the manual documents their maximum.
    case M_MXFAST:
      return value >= 0 && value <= max_mxfast ? 1 : 0;
    case M_MMAP_THRESHOLD:
      return value >= 0 && value <= max_mmap_threshold ? 1 : 0;
    // Filling blocks with a pattern is visible behaviour that no heap here implements, because
    // malloc and free would have to check for it at each call. So only 0 is accepted.
    case M_PERTURB:
      return value == 0 ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace ts
