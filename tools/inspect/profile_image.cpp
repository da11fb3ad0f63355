// See profile_image.h.
#include "inspect/profile_image.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/json_line.h"
#include "features/profile/stranded_bytes.h"
#include "front/fail.h"
#include "inspect/account.h"
#include "os/atomic_file.h"
#include "os/os.h"

namespace ts {
namespace {

// A process keeps less than this; larger tables are damaged.
constexpr std::size_t max_bytes = std::size_t{64} << 20;

// Copies an array into memory of this process; null if it cannot be read.
template <class T>
T* copy_of(const Process& process, const T* items, std::size_t count) {
  if (count > max_bytes / sizeof(T)) return nullptr;
  auto* const copy = static_cast<T*>(std::malloc(count * sizeof(T) + 1));
  if (copy == nullptr) std::abort();
  if (count == 0 || process.read(address_in(items), copy, count * sizeof(T))) return copy;
  std::free(copy);
  return nullptr;
}

}  // namespace

ProfileImage::~ProfileImage() {
  std::free(rows_);
  std::free(stacks_);
  std::free(in_use_);
  std::free(modules_);
}

ProfileImage::State ProfileImage::state(const Process& process, const EngineImage& image) {
  const Copy<engine::Samples> now;
  if (!now.read(process, image.samples())) return {};
  return {is_set(&now->are_taken), now->placeholder_bytes};
}

bool ProfileImage::read_tables(const Process& process, const engine::Samples& now) {
  std::free(rows_);
  std::free(stacks_);
  std::free(in_use_);
  rows_ = copy_of(process, now.rows.items, now.rows.count);
  stacks_ = copy_of(process, now.stacks.items, now.stacks.count);
  in_use_ = copy_of(process, now.in_use.items, now.in_use.count);
  if (rows_ == nullptr || stacks_ == nullptr || in_use_ == nullptr) return false;
  in_use_count_ = now.in_use.count;
  source_.rows = rows_;
  source_.row_count = now.rows.count;
  source_.stacks = stacks_;
  source_.stack_words = now.stacks.count;
  source_.interval = now.interval;
  source_.dropped = now.dropped;
  set_times(source_, now, os::coarse_milliseconds());
  return true;
}

// Retries with pauses of some milliseconds, so that a sample is unlikely to interfere every time.
bool ProfileImage::read(const Process& process, const EngineImage& image, bool is_at_rest) {
  constexpr unsigned max_tries = 1000;
  constexpr unsigned pause_us = 500;
  const Copy<engine::Samples> before;
  const Copy<engine::Samples> after;
  for (unsigned i = 0; i < max_tries; ++i, ::usleep(pause_us)) {
    if (!before.read(process, image.samples())) return false;
    // relaxed, each: these are local copies
    const std::uint32_t changes = before->changes.load(std::memory_order_relaxed);
    if (changes % 2 != 0 && !is_at_rest) continue;
    const bool is_read = read_tables(process, before[0]);
    if (!after.read(process, image.samples())) return false;
    if (after->changes.load(std::memory_order_relaxed) != changes) continue;
    if (!is_read) return false;
    add_stranded(process, image);
    return read_modules(process, image);
  }
  return false;
}

// A sample freed in the meantime counts as its placeholder's slab does now.
void ProfileImage::add_stranded(const Process& process, const EngineImage& image) {
  const Copy<engine::Span> slab{engine::max_slab_pages};
  const Copy<engine::SlabUse> use{1};
  const std::size_t page_count = image.page_count();
  for (std::uint32_t i = 0; i < in_use_count_; ++i) {
    const engine::Sample& sample = in_use_[i];
    if (sample.placeholder == nullptr || sample.row >= source_.row_count) continue;
    const std::size_t page =
        (address_in(sample.placeholder) - image.map().base) / engine::page_bytes;
    engine::MapPage of_page;
    if (page >= page_count || !process.read(address_in(image.map().pages, page), of_page)) continue;
    const std::size_t first =
        page - (engine::offset_in_slab(sample.placeholder, of_page) >> engine::page_shift);
    const std::size_t count = std::min(engine::max_slab_pages, page_count - first);
    if (first > page || !slab.read(process, address_in(image.map().spans, first), count)) continue;
    if (slab->state != engine::SpanState::slab || slab->pages > count) continue;
    if (!use.read(process, address_in(image.map().uses, first), 1)) continue;
    engine::add_stranded(rows_[sample.row], sample, &slab[0],
                         use->used.load(std::memory_order_relaxed));
    pins_.add({first, sample.row});
  }
}

bool ProfileImage::read_modules(const Process& process, const EngineImage& image) {
  os::ModuleTable table = {};
  if (!process.read(image.module_table(), table) || table.record_bytes > 4096) return false;
  modules_ = static_cast<os::Module*>(std::calloc(os::max_modules, sizeof(os::Module)));
  if (modules_ == nullptr) std::abort();
  module_count_ = 0;
  for (unsigned i = 0; i < os::max_modules; ++i) {
    const std::uintptr_t record = address_in(table.records) + i * table.record_bytes;
    std::uint32_t state = 0;
    if (!process.read(record, state)) return false;
    if (state == 0) break;
    os::Module& module = modules_[module_count_];
    if (!process.read(record + table.module_at, module)) return false;
    module.path[sizeof module.path - 1] = '\0';
    ++module_count_;
  }
  return true;
}

std::uint64_t ProfileImage::samples() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < source_.row_count; ++i) sum += rows_[i].allocated.samples;
  return sum;
}

std::uint64_t ProfileImage::samples_in_use() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < source_.row_count; ++i) sum += rows_[i].in_use.samples;
  return sum;
}

ProfileImage::Stack ProfileImage::stack_of(const engine::SampleRow& row) const {
  if (row.stack >= source_.stack_words) return {};
  const auto& header = *reinterpret_cast<const engine::StackHeader*>(stacks_ + row.stack);
  return {stacks_ + row.stack + 1,
          std::min<std::uint32_t>(header.depth, source_.stack_words - row.stack - 1)};
}

const os::Module* ProfileImage::module_of(std::uint64_t address) const {
  os::Module* const end = modules_ + module_count_;
  os::Module* const found = std::find_if(modules_, end, [address](const os::Module& each) {
    return address >= each.begin && address < each.end;
  });
  return found != end ? found : nullptr;
}

int ProfileImage::write_to(const char* path, Process& process, const EngineImage& image,
                           engine::ProfileKind kind) const {
  os::AtomicFile file{path};
  if (file.error() != 0) return file.error();
  engine::ProfileSource source = source_;
  source.kind = kind;
  static Account account;
  if (kind != engine::ProfileKind::peak &&
      take_account(process, &image, AccountBasis::tables, account))
    source.in_use_bytes = account.live;
  const int error = write(process, source, file.descriptor());
  return error != 0 ? error : file.keep();
}

int ProfileImage::write(const Process& process, const engine::ProfileSource& of_samples,
                        int descriptor) const {
  char link[64];
  char program[PATH_MAX] = "";
  format(link, sizeof link, "/proc/%d/exe", process.task());
  os::read_program(program, sizeof program, link);
  engine::ProfileSource source = of_samples;
  source.module = [](const void* image, unsigned number) noexcept -> const os::Module* {
    const auto& self = *static_cast<const ProfileImage*>(image);
    return number < self.module_count_ ? &self.modules_[number] : nullptr;
  };
  source.argument = this;
  source.version = TSMALLOC_VERSION_TEXT;
  source.program = program;
  source.command = process.command();
  source.process = static_cast<std::uint64_t>(process.pid());
  source.unix_ns = os::unix_nanoseconds();
  return write_profile(source, descriptor);
}

}  // namespace ts
