// Fragmentation by call site (features/profile/stranded_bytes.h), for `explain`: which sites strand
// bytes in slabs, according to the heap profile of a sampling process. Sites are places in files,
// without names.
#pragma once

#include "inspect/profile_image.h"

namespace ts {

// A sum of samples, each taken with a probability of at most 1 in 256, so the sum of squares is the
// variance.
struct StrandedBytes {
  double bytes = 0;
  double variance = 0;
  void add(const engine::Stranded& stranded);
  // Half the width of the 95% interval, in bytes.
  double error() const;
};

class StrandedSites {
 public:
  // The innermost frame outside the allocator and the C++ library.
  struct Site {
    const char* module;  // the end of the file's path
    std::uint64_t offset;
    StrandedBytes room;
  };

  // Reads the profile. There are no sites if the process does not sample, or cannot be read.
  void read(const Process& process, const EngineImage& image);

  const StrandedBytes& all() const { return all_; }
  // Those that strand most come first.
  const Site* begin() const { return sites_.begin(); }
  const Site* end() const { return sites_.end(); }
  // The index of a site with a sample in the slab that begins at that page; -1 if there is none.
  std::int64_t in_slab(std::size_t page) const;

 private:
  struct Pin {
    std::size_t page;
    std::int64_t site;
  };
  Site place_of(const Process& process, const engine::SampleRow& row) const;
  void add(const Process& process, const engine::SampleRow& row);

  ProfileImage profile_;
  StrandedBytes all_;
  List<Site> sites_;
  List<Pin> pins_;  // by page
};

}  // namespace ts
