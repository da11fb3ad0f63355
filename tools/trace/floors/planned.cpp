// See planned.h.
#include "trace/floors/planned.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "trace/floors/choice.h"
#include "trace/format/error.h"

namespace ts::trace {
namespace {

std::uint64_t pages_up(std::uint64_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// --- writing ------------------------------------------------------------------------------------

// The words of the section: an address for each operation that makes a block, 0 for all others.
std::vector<std::uint64_t> section(const plan::Image& image, const Blocks& blocks,
                                   const Addresses& addresses, std::uint64_t span) {
  std::vector<std::uint64_t> words(image.operations);
  std::vector<bool> is_used(span / grain);
  for (std::size_t i = 0; i < blocks.blocks.size(); ++i) {
    const Block& block = blocks.blocks[i];
    const auto first = is_used.begin() + static_cast<std::ptrdiff_t>(addresses[i] / grain);
    const auto end = first + static_cast<std::ptrdiff_t>(block.size() / grain);
    const bool is_fresh = std::find(first, end, true) == end;
    std::fill(first, end, true);
    words[block.operation] = addresses[i] | (is_fresh ? plan::address_fresh : 0);
  }
  return words;
}

// A file that is closed when it goes, and every write to which is whole.
class OpenPlan {
 public:
  explicit OpenPlan(const std::string& path)
      : path_{path}, descriptor_{open(path.c_str(), O_RDWR | O_CLOEXEC)} {
    if (descriptor_ < 0) fail();
  }
  ~OpenPlan() { close(descriptor_); }
  OpenPlan(const OpenPlan&) = delete;
  OpenPlan& operator=(const OpenPlan&) = delete;

  void write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
    const char* rest = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = pwrite(descriptor_, rest, bytes, static_cast<off_t>(offset));
      if (written < 0) {
        if (errno == EINTR) continue;
        fail();
      }
      rest += written;
      offset += static_cast<std::uint64_t>(written);
      bytes -= static_cast<std::size_t>(written);
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw Error("the addresses cannot be written to " + path_ + ": " + std::strerror(errno) +
                ". Make room, or name another file.");
  }

  std::string path_;
  int descriptor_;
};

// --- checking -----------------------------------------------------------------------------------

class AddressCheck {
 public:
  AddressCheck(const plan::View& view, const plan::Image& image)
      : image_{image}, addresses_{view.addresses(image)}, held_(image.slots) {
    if (addresses_ == nullptr) throw Error("the plan has no addresses. `trace floors` makes them.");
    was_used_.resize(image.arena_bytes);
  }

  void on(std::uint64_t index, const plan::Operation& operation) {
    switch (static_cast<plan::Kind>(operation.kind)) {
      case plan::Kind::malloc:
      case plan::Kind::calloc:
      case plan::Kind::aligned:
        place(index, operation, address_of(index));
        break;
      case plan::Kind::realloc: {
        const std::uint64_t former = held_.at(operation.slot);
        const std::uint64_t address = address_of(index);
        // A block that moves must not overlap what it is copied from.
        if (address == former) live_.erase(former);
        place(index, operation, address);
        if (address != former) live_.erase(former);
        break;
      }
      case plan::Kind::free:
        live_.erase(held_.at(operation.slot));
        break;
      default:
        break;
    }
  }

 private:
  std::uint64_t address_of(std::uint64_t index) const {
    return addresses_[index] & ~std::uint64_t{7};
  }

  void place(std::uint64_t index, const plan::Operation& operation, std::uint64_t address) {
    const std::uint64_t bytes = std::max<std::uint64_t>(operation.size, 1);
    const bool is_aligned = static_cast<plan::Kind>(operation.kind) == plan::Kind::aligned;
    const std::uint64_t alignment =
        is_aligned ? std::max(grain, std::uint64_t{1} << operation.log2_alignment) : grain;
    if (address % alignment != 0) refuse(index, "is not aligned");
    if (address > image_.arena_bytes || bytes > image_.arena_bytes - address) {
      refuse(index, "lies outside of the arena");
    }
    const auto above = live_.lower_bound(address);
    if (above != live_.end() && above->first < address + bytes) refuse(index, "overlaps another");
    if (above != live_.begin() && std::prev(above)->second > address) {
      refuse(index, "overlaps another");
    }
    live_[address] = address + bytes;
    held_.at(operation.slot) = address;
    if ((addresses_[index] & plan::address_fresh) != 0) check_fresh(index, address, bytes);
    std::fill_n(was_used_.begin() + static_cast<std::ptrdiff_t>(address), bytes, true);
  }

  void check_fresh(std::uint64_t index, std::uint64_t address, std::uint64_t bytes) const {
    const auto first = was_used_.begin() + static_cast<std::ptrdiff_t>(address);
    const auto end = first + static_cast<std::ptrdiff_t>(bytes);
    if (std::find(first, end, true) != end) refuse(index, "is not on fresh memory");
  }

  [[noreturn]] static void refuse(std::uint64_t index, const char* what) {
    throw Error("the planned block of operation " + std::to_string(index) + ' ' + what +
                ". This is a defect of `trace floors`: please report it, with the trace.");
  }

  const plan::Image& image_;
  const std::uint64_t* addresses_;
  std::vector<std::uint64_t> held_;              // by slot
  std::map<std::uint64_t, std::uint64_t> live_;  // where live objects begin and end
  std::vector<bool> was_used_;                   // by byte
};

}  // namespace

void write_addresses(const std::string& path, const Blocks& blocks, const Addresses& addresses) {
  plan::View view;
  plan::Problem problem;
  if (!view.open(path.c_str(), false, problem)) throw Error(problem.text);
  plan::Header header = view.header();
  plan::Image image = view.image(0);
  if (image.addresses_offset != 0) {
    throw Error(path + " has addresses already. Make the plan again with `trace floors`.");
  }
  std::uint64_t span = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    span = std::max(span, addresses[i] + blocks.blocks[i].size());
  }
  const std::vector<std::uint64_t> words = section(image, blocks, addresses, span);
  image.arena_bytes = std::max(page_bytes, pages_up(span));
  image.addresses_offset = pages_up(header.file_bytes);
  header.file_bytes = image.addresses_offset + words.size() * sizeof words[0];
  // The header last: until then the file counts as cut off.
  OpenPlan file{path};
  file.write_at(image.addresses_offset, words.data(), words.size() * sizeof words[0]);
  file.write_at(header.images_offset, &image, sizeof image);
  file.write_at(0, &header, sizeof header);
}

void check_addresses(const plan::View& view, const plan::Image& image) {
  AddressCheck check{view, image};
  std::vector<std::uint64_t> cursors(image.threads);
  const bool is_whole = plan::in_recorded_order(
      view, image, cursors.data(),
      [&](std::uint32_t, std::uint64_t index, const plan::Operation& operation) {
        check.on(index, operation);
      });
  if (!is_whole) throw Error("the plan's runs are not those of its threads. Make it again.");
}

}  // namespace ts::trace
