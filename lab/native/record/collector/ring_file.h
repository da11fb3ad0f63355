// Creates, maps and removes the file of the ring.
//
// The file must be fully allocated before a program writes into it, since a full file system would
// kill the program with SIGBUS. The next recorder removes the files of a killed one, recognized by
// a lock that dies with its holder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "record/ring.h"

namespace ts::record {

class RingFile {
 public:
  // Throws trace::Error, with the remedy, if there is no room.
  RingFile(std::size_t chunks, RingClock clock);
  ~RingFile();
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  const std::string& path() const { return path_; }
  Ring& ring() { return *ring_; }

 private:
  void create_in(const std::string& parent);

  std::string directory_;
  std::string path_;
  int descriptor_ = -1;
  Ring* ring_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ts::record
