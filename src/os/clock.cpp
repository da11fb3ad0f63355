// The clock, through the code that the kernel maps into each process (vdso(7)) rather than the C
// library's clock_gettime(), which fake clocks and tracers interpose.
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "os/os.h"
#include "os/system_call.h"

namespace ts::os {
namespace {

using GetTime = long(clockid_t clock, timespec* now);

#if defined(__aarch64__)
constexpr std::string_view name_in_vdso = "__kernel_clock_gettime";
#else
constexpr std::string_view name_in_vdso = "__vdso_clock_gettime";
#endif

// relaxed: null, or a function that stays as long as the process
constinit std::atomic<GetTime*> get_time{nullptr};

// Compares without strcmp().
bool is_named(const char* name, std::string_view wanted) noexcept {
  for (const char letter : wanted) {
    if (*name++ != letter) return false;
  }
  return *name == '\0';
}

// Dynamic symbols of an image that the kernel mapped. Newer kernels omit the first of the two hash
// tables, the only one that states the number of symbols.
struct Symbols {
  std::uintptr_t bias = 0;  // added to all addresses
  const ElfW(Sym) * first = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hash = nullptr;
  const std::uint32_t* gnu_hash = nullptr;

  std::uint32_t count() const noexcept {
    if (hash != nullptr) return hash[1];
    if (gnu_hash == nullptr) return 0;
    // Buckets, first symbol in the table, words of the filter, shift | filter | buckets | chains:
    // the last symbol ends the chain that starts last.
    const std::uint32_t buckets = gnu_hash[0];
    const std::uint32_t first_hashed = gnu_hash[1];
    const auto* const bucket =
        gnu_hash + 4 + gnu_hash[2] * (sizeof(std::uintptr_t) / sizeof(std::uint32_t));
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
    if (last < first_hashed) return first_hashed;
    const std::uint32_t* const chains = bucket + buckets;
    while ((chains[last - first_hashed] & 1) == 0) ++last;
    return last + 1;
  }
};

Symbols symbols_of(std::uintptr_t image) noexcept {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(image);
  const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(image + header->e_phoff);
  Symbols symbols;
  const ElfW(Dyn)* entry = nullptr;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    if (parts[i].p_type == PT_LOAD) symbols.bias = image + parts[i].p_offset - parts[i].p_vaddr;
    if (parts[i].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn)*>(image + parts[i].p_offset);
  }
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const std::uintptr_t at = symbols.bias + entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) symbols.first = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_STRTAB) symbols.names = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_HASH) symbols.hash = reinterpret_cast<const std::uint32_t*>(at);
    if (entry->d_tag == DT_GNU_HASH) symbols.gnu_hash = reinterpret_cast<const std::uint32_t*>(at);
  }
  return symbols;
}

timespec now_by(clockid_t clock) noexcept {
  timespec now{};
  GetTime* const get = get_time.load(std::memory_order_relaxed);
  if (get == nullptr || get(clock, &now) != 0) call(SYS_clock_gettime, clock, &now);
  return now;
}

std::uint64_t nanoseconds_by(clockid_t clock) noexcept {
  const timespec now = now_by(clock);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

void find_clock() noexcept {
  const std::uintptr_t image = ::getauxval(AT_SYSINFO_EHDR);
  if (image == 0) return;
  const Symbols symbols = symbols_of(image);
  if (symbols.first == nullptr || symbols.names == nullptr) return;
  const std::uint32_t count = symbols.count();
  for (std::uint32_t i = 0; i < count; ++i) {
    const ElfW(Sym)& symbol = symbols.first[i];
    if (symbol.st_shndx == SHN_UNDEF || !is_named(symbols.names + symbol.st_name, name_in_vdso))
      continue;
    get_time.store(reinterpret_cast<GetTime*>(symbols.bias + symbol.st_value),
                   std::memory_order_relaxed);
    return;
  }
}

std::uint64_t coarse_milliseconds() noexcept {
  const timespec now = now_by(CLOCK_MONOTONIC_COARSE);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000 + 1;
}

std::uint64_t nanoseconds() noexcept { return nanoseconds_by(CLOCK_MONOTONIC); }
std::uint64_t unix_nanoseconds() noexcept { return nanoseconds_by(CLOCK_REALTIME); }

}  // namespace ts::os
