// Call stacks for people. libc's backtrace_symbols_fd() takes the lock of dlopen, which may be held
// by a thread that waits for this one (a plugin whose constructor starts and joins a thread, for
// example). So this reads a file's symbols itself.
#include "unwind/stack_lines.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cerrno>

#include "base/bits.h"
#include "os/atomic_file.h"
#include "os/error_line.h"
#include "os/os.h"
#include "unwind/unwind.h"

namespace ts::os {
namespace {

// Describes a code address.
struct Place {
  std::uintptr_t pc;
  const char* path = nullptr;  // null: in no file; "": in the program
  std::uintptr_t offset = 0;   // in the file, as addr2line expects it
  const char* function = nullptr;
  std::uintptr_t function_offset = 0;
};

// A file's names for the dynamic linker.
struct Names {
  const ElfW(Sym) * symbols = nullptr;
  const char* texts = nullptr;
  const std::uint32_t* hash = nullptr;  // DT_GNU_HASH

  bool are_there() const noexcept {
    return symbols != nullptr && texts != nullptr && hash != nullptr;
  }

  // Each chain ends with an odd word, and the last chain has the last symbols.
  std::uint32_t count() const noexcept {
    constexpr unsigned header_words = 4;
    const std::uint32_t buckets = hash[0];
    const std::uint32_t first = hash[1];
    const std::uint32_t* const bucket = hash + header_words + 2 * std::size_t{hash[2]};
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
    if (last < first) return 0;
    const std::uint32_t* const chain = bucket + buckets;
    while ((chain[last - first] & 1) == 0) ++last;
    return last + 1;
  }
};

Names names_of(const ElfW(Dyn) * dynamic, std::uintptr_t bias) noexcept {
  Names names;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    // Some C libraries have relocated these addresses, and some have not.
    std::uintptr_t address = dynamic->d_un.d_ptr;
    if (address < bias) address += bias;
    if (dynamic->d_tag == DT_SYMTAB) names.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (dynamic->d_tag == DT_STRTAB) names.texts = reinterpret_cast<const char*>(address);
    if (dynamic->d_tag == DT_GNU_HASH) names.hash = reinterpret_cast<const std::uint32_t*>(address);
  }
  return names;
}

void find_function_around(Place& place, const Names& names) noexcept {
  const std::uint32_t count = names.are_there() ? names.count() : 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const ElfW(Sym)& symbol = names.symbols[i];
    const bool is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
    // The call is before the address, which may be just after the function.
    if (!is_function || place.offset - 1 - symbol.st_value >= symbol.st_size) continue;
    place.function = names.texts + symbol.st_name;
    place.function_offset = place.offset - symbol.st_value;
    return;
  }
}

int find_in_file(dl_phdr_info* info, std::size_t, void* argument) noexcept {
  auto& place = *static_cast<Place*>(argument);
  const ElfW(Dyn)* dynamic = nullptr;
  bool is_here = false;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && place.pc - begin < part.p_memsz) is_here = true;
    if (part.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
  if (!is_here) return 0;
  place.path = info->dlpi_name;
  place.offset = place.pc - info->dlpi_addr;
  if (dynamic != nullptr) find_function_around(place, names_of(dynamic, info->dlpi_addr));
  return 1;
}

void hexadecimal(Text& text, std::uintptr_t value) noexcept {
  text.address(reinterpret_cast<const void*>(value));
}

void write_line(const Place& place) noexcept {
  char bytes[512];
  constexpr std::size_t numbers_bytes = sizeof "+0x0123456789abcdef)[0x0123456789abcdef]\n";
  Text names{bytes, sizeof bytes - numbers_bytes};
  const char* path = place.path;
  char program[256];
  if (path != nullptr && *path == '\0') {
    read_program(program, sizeof program);
    path = *program != '\0' ? program : reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  }
  if (path != nullptr) {
    names.text(path);
    names.text("(");
    if (place.function != nullptr) names.text(place.function);
  }
  Text numbers{bytes + names.length(), numbers_bytes};
  if (path != nullptr) {
    numbers.text("+");
    hexadecimal(numbers, place.function != nullptr ? place.function_offset : place.offset);
    numbers.text(")");
  }
  numbers.text("[");
  hexadecimal(numbers, place.pc);
  numbers.text("]\n");
  write_error(bytes, names.length() + numbers.length());
}

}  // namespace

void take_call_stack(CallStack& stack) noexcept {
  const int kept = errno;
  refresh_modules_within_malloc();
  UnwoundStack unwound;
  unwind(unwound);
  stack.depth = static_cast<int>(std::min<unsigned>(unwound.depth, most_frames));
  for (int i = 0; i < stack.depth; ++i)
    stack.frames[i] = reinterpret_cast<void*>(unwound.frames[i]);
  errno = kept;
}

void write_call_stack(const CallStack& stack) noexcept {
  for (int i = 0; i < stack.depth; ++i) {
    Place place{.pc = address_of(stack.frames[i])};
    ::dl_iterate_phdr(find_in_file, &place);
    write_line(place);
  }
}

}  // namespace ts::os
