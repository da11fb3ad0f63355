// The heap profile in another process, read while it runs.
#pragma once

#include "features/profile/profile_file.h"
#include "inspect/engine_image.h"

namespace ts {

class ProfileImage {
 public:
  ProfileImage() = default;
  ~ProfileImage();
  ProfileImage(const ProfileImage&) = delete;
  ProfileImage& operator=(const ProfileImage&) = delete;

  // The process's sampling statistics, whichever verb asked for the samples; zeros if they cannot
  // be read.
  struct State {
    bool are_taken = false;
    std::size_t placeholder_bytes = 0;  // features/profile/stranded_bytes.h
  };
  static State state(const Process& process, const EngineImage& image);

  // Copies the tables as they are at one moment; if the process is stopped, even in the middle of a
  // change. False if memory is unreadable, or damaged.
  bool read(const Process& process, const EngineImage& image, bool is_at_rest = false);

  // How many samples there were, and how many are in use.
  std::uint64_t samples() const;
  std::uint64_t samples_in_use() const;

  const engine::SampleRow* begin() const { return rows_; }
  const engine::SampleRow* end() const { return rows_ + source_.row_count; }
  // Innermost first; null and 0 if the row is damaged.
  struct Stack {
    const std::uint64_t* frames;
    std::uint32_t depth;
  };
  Stack stack_of(const engine::SampleRow& row) const;
  // Which row has a sample with a block in a slab, by the slab's first page: samples that strand
  // bytes.
  struct Pin {
    std::size_t page;
    std::uint32_t row;
  };
  const List<Pin>& pins() const { return pins_; }
  // The file of a frame, or null.
  const os::Module* module_of(std::uint64_t address) const;

  // Returns 0, or an error. Includes the number of bytes in use, except in a profile of the peak.
  int write_to(const char* path, Process& process, const EngineImage& image,
               engine::ProfileKind kind) const;

 private:
  bool read_tables(const Process& process, const engine::Samples& now);
  void add_stranded(const Process& process, const EngineImage& image);
  bool read_modules(const Process& process, const EngineImage& image);
  int write(const Process& process, const engine::ProfileSource& source, int descriptor) const;

  engine::ProfileSource source_;
  engine::SampleRow* rows_ = nullptr;
  std::uint64_t* stacks_ = nullptr;
  engine::Sample* in_use_ = nullptr;
  std::uint32_t in_use_count_ = 0;
  List<Pin> pins_;
  os::Module* modules_ = nullptr;
  unsigned module_count_ = 0;
};

}  // namespace ts
