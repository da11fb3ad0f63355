// An opened trace: its chunks, what they hold in all, and what is wrong with it.
//
// Why it exists: a Reader and its Cursors share it. What it refuses to do: keep events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/format/chunk_list.h"
#include "trace/format/contents.h"
#include "trace/format/damages.h"
#include "trace/format/input_file.h"
#include "trace/format/reader.h"

namespace ts::trace {

class EventDecoder;

class TraceFile {
 public:
  explicit TraceFile(const std::string& path);

  const InputFile& file() const { return file_; }
  const std::vector<Chunk>& chunks() const { return list_.chunks; }
  const Contents& contents() const { return contents_; }
  const std::vector<Damage>& damage() const { return damages_.list(); }
  bool is_finished() const { return list_.footer.has_value(); }
  // The place of an image in contents(); contents().images.size() if there is none.
  std::size_t find(std::uint32_t image) const;

  void verify();

 private:
  void find_chunks();
  void tell_missing_end();
  void verify_chunk(const Chunk& chunk, EventDecoder& decoder, Bytes& bytes);

  InputFile file_;
  Damages damages_;
  bool is_header_damaged_ = false;
  ChunkList list_;
  Contents contents_;
  bool is_verified_ = false;
};

}  // namespace ts::trace
