// Fragmentation by call site (features/profile/stranded_bytes.h), for `explain`: which sites keep
// the free room of slabs from going back, by the heap profile of a process that samples. Without
// names: a place in a file.
#pragma once

#include "inspect/profile_image.h"

namespace ts {

// A sum of samples, each taken with a probability of 1 in 256 at most: the squares are the
// variance.
struct StrandedBytes {
  double bytes = 0;
  double variance = 0;
  void add(const engine::Stranded& stranded);
  // Half of the 95 % interval, in bytes.
  double error() const;
};

class StrandedSites {
 public:
  // The innermost frame beyond the allocator and the C++ library.
  struct Site {
    const char* module;  // the end of the file's path
    std::uint64_t offset;
    StrandedBytes room;
  };

  // Takes the profile. It has no sites if the process does not sample, or is unreadable.
  void read(const Process& process, const EngineImage& image);

  const StrandedBytes& all() const { return all_; }
  // Those that pin most first.
  const Site* begin() const { return sites_.begin(); }
  const Site* end() const { return sites_.end(); }
  // The number of one that has a sample in the slab that begins with that page; -1 if none has.
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
