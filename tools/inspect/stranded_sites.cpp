// See stranded_sites.h.
#include "inspect/stranded_sites.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

namespace ts {
namespace {

const char* name_of(const os::Module* module, const Process& process) {
  if (module == nullptr) return "";
  if (module->path[0] == '\0') return process.command();
  const char* const slash = std::strrchr(module->path, '/');
  return slash != nullptr ? slash + 1 : module->path;
}

bool is_allocator_module(const char* module) {
  constexpr const char* beginnings[] = {"libtsmalloc", "libstdc++.", "libc++."};
  return std::any_of(std::begin(beginnings), std::end(beginnings), [module](const char* beginning) {
    return std::strncmp(module, beginning, std::strlen(beginning)) == 0;
  });
}

}  // namespace

double StrandedBytes::error() const { return 1.96 * std::sqrt(variance); }

void StrandedBytes::add(const engine::Stranded& stranded) {
  bytes += stranded.bytes;
  variance += stranded.squares;
}

void StrandedSites::read(const Process& process, const EngineImage& image) {
  if (ProfileImage::state(process, image).placeholder_bytes == 0 || !profile_.read(process, image))
    return;
  for (const engine::SampleRow& row : profile_) {
    if (row.stranded.bytes > 0) add(process, row);
  }
  std::sort(sites_.begin(), sites_.end(),
            [](const Site& a, const Site& b) { return a.room.bytes > b.room.bytes; });
  List<std::ptrdiff_t> site_of_row;
  for (const engine::SampleRow& row : profile_) {
    const Site place = row.stranded.bytes > 0 ? place_of(process, row) : Site{};
    site_of_row.add(std::find_if(sites_.begin(), sites_.end(),
                                 [&](const Site& each) {
                                   return each.offset == place.offset &&
                                          each.module == place.module;
                                 }) -
                    sites_.begin());
  }
  for (const ProfileImage::Pin& pin : profile_.pins()) {
    const std::ptrdiff_t site = site_of_row[pin.row];
    if (site < sites_.end() - sites_.begin()) pins_.add({pin.page, site});
  }
  std::sort(pins_.begin(), pins_.end(), [](const Pin& a, const Pin& b) { return a.page < b.page; });
}

std::int64_t StrandedSites::in_slab(std::size_t page) const {
  const Pin* const found =
      std::lower_bound(pins_.begin(), pins_.end(), page,
                       [](const Pin& pin, std::size_t at) { return pin.page < at; });
  return found != pins_.end() && found->page == page ? found->site : -1;
}

StrandedSites::Site StrandedSites::place_of(const Process& process,
                                            const engine::SampleRow& row) const {
  const auto [frames, depth] = profile_.stack_of(row);
  const char* module = "";
  std::uint64_t offset = 0;
  for (std::uint32_t i = 0; i < depth; ++i) {
    const os::Module* const found = profile_.module_of(frames[i]);
    module = name_of(found, process);
    // An address within the call: return addresses follow it.
    offset = frames[i] - 1 - (found != nullptr ? found->begin - found->file_offset : 0);
    if (!is_allocator_module(module)) break;
  }
  return {module, offset, {}};
}

void StrandedSites::add(const Process& process, const engine::SampleRow& row) {
  const Site place = place_of(process, row);
  all_.add(row.stranded);
  for (Site& site : sites_) {
    if (site.offset == place.offset && site.module == place.module)
      return site.room.add(row.stranded);
  }
  sites_.add(place).room.add(row.stranded);
}

}  // namespace ts
