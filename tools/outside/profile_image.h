// The heap profile in another process, read while it goes on.
#pragma once

#include "engine/profile_file.h"
#include "outside/engine_image.h"

namespace ts {

class ProfileImage {
 public:
  ProfileImage() = default;
  ~ProfileImage();
  ProfileImage(const ProfileImage&) = delete;
  ProfileImage& operator=(const ProfileImage&) = delete;

  // Whether the process takes samples, whoever asked for them.
  static bool are_taken(const Process& process, const EngineImage& image);

  // Copies the tables of a moment. False if memory is unreadable, or damaged.
  bool read(const Process& process, const EngineImage& image);

  // How many samples there were, and how many are in use.
  std::uint64_t samples() const;
  std::uint64_t samples_in_use() const;

  // 0, or an error of write(2).
  int write(const Process& process, engine::ProfileKind kind, const char* version,
            int descriptor) const;

 private:
  bool read_tables(const Process& process, const engine::Samples& now);
  bool read_modules(const Process& process, const EngineImage& image);

  engine::ProfileSource source_;
  std::uint64_t began_ms_ = 0;
  engine::SampleRow* rows_ = nullptr;
  std::uint64_t* stacks_ = nullptr;
  os::Module* modules_ = nullptr;
  unsigned module_count_ = 0;
};

}  // namespace ts
