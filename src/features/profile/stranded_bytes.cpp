#include "features/profile/stranded_bytes.h"

#include <algorithm>

#include "base/exponential.h"
#include "core/racy_read.h"

namespace ts::engine {

void add_stranded(SampleRow& row, const Sample& sample, const Span* slab,
                  std::size_t used) noexcept {
  // Another process's memory may contain any numbers.
  const std::size_t bytes = std::min<std::size_t>(slab->pages, max_slab_pages) * page_bytes;
  used = std::max<std::size_t>(used, 1);
  const std::size_t kept = used * sample.block_bytes + purged_bytes_of(*slab);
  const double room = static_cast<double>(bytes - std::min(bytes, kept));
  const double weight = 1 / probability_within(static_cast<double>(sample.block_bytes) /
                                               static_cast<double>(row.interval));
  const double stranded = weight * room / static_cast<double>(used);
  row.stranded.bytes += stranded;
  row.stranded.squares += stranded * stranded;
}

}  // namespace ts::engine
