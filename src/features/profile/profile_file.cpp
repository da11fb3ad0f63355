#include "features/profile/profile_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "features/profile/protocol_buffer.h"
#include "os/error_line.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// ---- names ----

// The first strings of the table, by number.
enum class Name : std::uint32_t {
  empty,
  alloc_objects,
  alloc_space,
  inuse_objects,
  inuse_space,
  pinned_space,
  count,
  bytes,
  space,
  block,
  interval,
  allocs,
  live,
  age,
  milliseconds,
  stack,
  cut,
  size_class,
  pinning,
  name_count,
};
constexpr const char* names[] = {
    "",        "alloc_objects", "alloc_space",  "inuse_objects", "inuse_space", "pinned_space",
    "count",   "bytes",         "space",        "block",         "interval",    "allocs",
    "live",    "age",           "milliseconds", "stack",         "cut",         "class",
    "pinning",
};
constexpr auto name_count = static_cast<std::uint32_t>(Name::name_count);
static_assert(std::size(names) == name_count);

constexpr std::uint64_t number_of(Name name) noexcept { return static_cast<std::uint64_t>(name); }

constexpr const char* kinds[] = {"now", "exit", "peak", "limit"};

// ---- addresses ----

// All addresses of the stacks, sorted, each once: a location's number is 1 + its index.
class Addresses {
 public:
  explicit Addresses(const ProfileSource& source) noexcept
      : bytes_{align_up(std::max<std::size_t>(source.stack_words, 1) * sizeof(std::uint64_t),
                        os::page_bytes())},
        items_{static_cast<std::uint64_t*>(os::map(bytes_))} {
    if (items_ == nullptr) return;
    for (std::uint32_t at = 0; at < source.stack_words;) {
      const auto& header = *reinterpret_cast<const StackHeader*>(source.stacks + at);
      const std::uint32_t depth =
          std::min<std::uint32_t>(header.depth, source.stack_words - at - 1);
      std::memcpy(items_ + count_, source.stacks + at + 1, depth * sizeof(std::uint64_t));
      count_ += depth;
      at += 1 + depth;
    }
    std::make_heap(items_, items_ + count_);
    std::sort_heap(items_, items_ + count_);  // less code than std::sort
    count_ = static_cast<std::size_t>(std::unique(items_, items_ + count_) - items_);
  }
  ~Addresses() {
    if (items_ != nullptr) os::unmap_unused(items_, bytes_);
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  bool is_valid() const noexcept { return items_ != nullptr; }
  std::size_t count() const noexcept { return count_; }
  std::uint64_t operator[](std::size_t index) const noexcept { return items_[index]; }
  std::uint64_t location_of(std::uint64_t address) const noexcept {
    return 1 +
           static_cast<std::uint64_t>(std::lower_bound(items_, items_ + count_, address) - items_);
  }

 private:
  std::size_t bytes_;
  std::uint64_t* items_;
  std::size_t count_ = 0;
};

// ---- the file ----

// Large enough for three numbers, for six, for the frames of a stack, and for a whole row.
using Label = MessageOf<std::size_t{3} * 2 * max_varint_bytes>;
using Fields = MessageOf<std::size_t{6} * 2 * max_varint_bytes>;
using Locations = MessageOf<os::max_stack_frames * max_varint_bytes>;
using Row = MessageOf<1024>;

class Writer {
 public:
  Writer(const ProfileSource& source, int descriptor) noexcept
      : source_{source}, out_{descriptor}, addresses_{source} {}

  int write() noexcept {
    if (!addresses_.is_valid()) return ENOMEM;
    write_types();
    for (std::uint32_t i = 0; i < source_.row_count; ++i) write_row(source_.rows[i]);
    write_modules();
    write_locations();
    write_facts();
    for (const char* const name : names) out_.text(6, name);
    write_module_names();
    write_comments();
    return out_.flush();
  }

 private:
  const os::Module* module(unsigned number) const noexcept {
    return source_.module(source_.argument, number);
  }

  void write_value_type(unsigned field, Name type, Name unit) noexcept {
    Label message;
    message.number(1, number_of(type));
    message.number(2, number_of(unit));
    out_.message(field, message);
  }

  void write_types() noexcept {
    write_value_type(1, Name::alloc_objects, Name::count);
    write_value_type(1, Name::alloc_space, Name::bytes);
    write_value_type(1, Name::inuse_objects, Name::count);
    write_value_type(1, Name::inuse_space, Name::bytes);
    write_value_type(1, Name::pinned_space, Name::bytes);
    write_value_type(11, Name::space, Name::bytes);
    out_.number(12, source_.interval);
    out_.number(14, number_of(Name::inuse_space));
  }

  static std::uint64_t mean(std::uint64_t sum, std::uint64_t count) noexcept {
    return (sum + count / 2) / count;
  }

  static void add_label(Message& row, Name key, std::uint64_t value, Name unit) noexcept {
    Label label;
    label.number(1, number_of(key));
    label.number(3, value);
    label.number(4, number_of(unit));
    row.message(3, label);
  }

  // Rounds down, and carries the remainder over to the next value, so that sums stay exact.
  static std::uint64_t whole(double value, double& left_over) noexcept {
    const double exact = value + left_over;
    const auto rounded = static_cast<std::uint64_t>(exact > 0 ? exact + 0.5 : 0);
    left_over = exact - static_cast<double>(rounded);
    return rounded;
  }

  void write_row(const SampleRow& row) noexcept {
    const bool is_peak = source_.kind == ProfileKind::peak;
    const Estimate& in_use = is_peak ? row.at_peak : row.in_use;
    if (row.allocated.samples == 0 || row.stack >= source_.stack_words) return;
    Row message;
    Locations locations;
    const auto& header = *reinterpret_cast<const StackHeader*>(source_.stacks + row.stack);
    const std::uint32_t depth = std::min<std::uint32_t>(
        {header.depth, source_.stack_words - row.stack - 1, os::max_stack_frames});
    for (std::uint32_t i = 1; i <= depth; ++i)
      locations.varint(addresses_.location_of(source_.stacks[row.stack + i]));
    message.message(1, locations);
    Fields values;
    values.varint(whole(row.allocated.blocks, left_over_[0]));
    values.varint(whole(row.allocated.bytes, left_over_[1]));
    values.varint(whole(in_use.blocks, left_over_[2]));
    values.varint(whole(in_use.bytes, left_over_[3]));
    const Stranded stranded = is_peak ? Stranded{} : row.stranded;
    values.varint(whole(stranded.bytes, left_over_[4]));
    message.message(2, values);
    const std::uint64_t samples = row.allocated.samples;
    add_label(message, Name::bytes, mean(row.requested_bytes, samples), Name::bytes);
    add_label(message, Name::size_class, row.size_class, Name::bytes);
    add_label(message, Name::block, mean(row.block_bytes, samples), Name::bytes);
    add_label(message, Name::interval, row.interval, Name::bytes);
    add_label(message, Name::allocs, samples, Name::count);
    add_label(message, Name::live, in_use.samples, Name::count);
    if (row.in_use.samples != 0 && !is_peak)
      add_label(message, Name::age,
                source_.age_ms - std::min(source_.age_ms, row.born_ms / row.in_use.samples),
                Name::milliseconds);
    // This many samples that pin equally much have the same sum and the same variance.
    double left_over = 0;
    if (stranded.squares > 0)
      add_label(message, Name::pinning,
                whole(stranded.bytes * stranded.bytes / stranded.squares, left_over), Name::count);
    if (header.is_whole == 0) {
      Label label;
      label.number(1, number_of(Name::stack));
      label.number(2, number_of(Name::cut));
      message.message(3, label);
    }
    out_.message(2, message);
  }

  // Each has two strings, after `names`. Readers take the first module for the program.
  void write_modules() noexcept {
    unsigned program = 0;
    for (; const os::Module* const each = module(module_count_); ++module_count_) {
      if (each->path[0] == '\0') program = module_count_;
    }
    for (unsigned i = 0; i < module_count_; ++i) {
      const unsigned number = i == 0 ? program : i - (i <= program ? 1 : 0);
      const os::Module& each = *module(number);
      Fields message;
      message.number(1, number + 1);
      message.number(2, each.begin);
      message.number(3, each.end);
      message.number(4, each.file_offset);
      message.number(5, name_count + 2 * number);
      message.number(6, name_count + 2 * number + 1);
      out_.message(3, message);
    }
  }

  void write_module_names() noexcept {
    for (unsigned i = 0; i < module_count_; ++i) {
      const os::Module& each = *module(i);
      out_.text(6, each.path[0] != '\0' ? each.path : source_.program);
      char digits[2 * sizeof each.build_id + 1] = {};
      char* digit = digits;
      for (std::uint32_t j = 0; j < each.build_id_bytes && j < sizeof each.build_id; ++j) {
        *digit++ = "0123456789abcdef"[each.build_id[j] >> 4];
        *digit++ = "0123456789abcdef"[each.build_id[j] & 15];
      }
      out_.text(6, digits);
    }
  }

  unsigned module_of(std::uint64_t address) const noexcept {
    for (unsigned i = 0; i < module_count_; ++i) {
      if (address >= module(i)->begin && address < module(i)->end) return i + 1;
    }
    return 0;
  }

  // An address within the call, since return addresses are after it.
  void write_locations() noexcept {
    for (std::size_t i = 0; i < addresses_.count(); ++i) {
      const std::uint64_t address = addresses_[i] - 1;
      Label message;
      message.number(1, i + 1);
      if (const unsigned number = module_of(address); number != 0) message.number(2, number);
      message.number(3, address);
      out_.message(4, message);
    }
  }

  void write_facts() noexcept {
    out_.number(9, source_.unix_ns);
    out_.number(10, source_.duration_ms * 1'000'000);
    for (std::uint32_t i = 0; i < (source_.in_use_bytes != 0 ? 8U : 7U); ++i)
      out_.number(13, name_count + 2 * std::uint64_t{module_count_} + i);
  }

  void write_comments() noexcept {
    const auto comment = [this](const char* name, const char* text, std::uint64_t number) {
      char bytes[128] = {};
      os::Text line{bytes, sizeof bytes - 1};
      line.text(name);
      text != nullptr ? line.text(text) : line.number(number);
      out_.text(6, bytes);
    };
    comment("tsmalloc ", source_.version, 0);
    comment("pid ", nullptr, source_.process);
    comment("command ", source_.command, 0);
    comment("dropped ", nullptr, source_.dropped);
    comment("kind ", kinds[static_cast<std::uint32_t>(source_.kind)], 0);
    comment("began_after_ms ", nullptr, source_.began_after_ms);
    comment("paused_ms ", nullptr, source_.paused_ms);
    if (source_.in_use_bytes != 0) comment("in_use ", nullptr, source_.in_use_bytes);
  }

  const ProfileSource& source_;
  Output out_;
  Addresses addresses_;
  unsigned module_count_ = 0;
  double left_over_[5] = {};
};

}  // namespace

int write_profile(const ProfileSource& source, int descriptor) noexcept {
  Writer writer{source, descriptor};
  return writer.write();
}

}  // namespace ts::engine
