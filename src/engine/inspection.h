// The ELF note by which tools/inspect finds the engine in another process's memory. It is in a
// program header of the library or program, which strip keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/attention.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "features/profile/samples.h"
#include "os/options.h"

namespace ts::engine {

// Changes if the structures that such a reader uses change: FNV-1a (Fowler, Noll and Vo) over their
// sizes and offsets.
[[gnu::used]] inline constexpr std::uint64_t layout_number = [] {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint64_t number) {
    hash ^= number;
    hash *= 0x100000001b3;
  };
  for (const std::uint64_t number : {page_bytes,
                                     sizeof(PageMap),
                                     offsetof(PageMap, page_count),
                                     offsetof(PageMap, pages),
                                     offsetof(PageMap, heaps),
                                     sizeof(MapPage),
                                     sizeof(Span),
                                     sizeof(SlabUse),
                                     offsetof(SlabUse, used),
                                     offsetof(Span, pages),
                                     offsetof(Span, carved),
                                     offsetof(Span, size_class),
                                     offsetof(Span, state),
                                     sizeof(RemoteFrees),
                                     offsetof(RemoteFrees, pending),
                                     sizeof(RemoteBatch),
                                     sizeof(HeapFront),
                                     offsetof(HeapFront, bins),
                                     std::size_t{keyless_bit},
                                     sizeof(ThreadHeap),
                                     batch_count,
                                     sizeof(PageHeap),
                                     sizeof(FreeSpans),
                                     sizeof(Options),
                                     sizeof(Samples),
                                     sizeof(SampleRow),
                                     offsetof(SampleRow, at_peak),
                                     sizeof(os::Module),
                                     std::size_t{heap_shift},
                                     std::size_t{arena_bit}})
    add(number);
  for (const SizeClass& c : size_classes) add(c.block_bytes);
  return hash;
}();

// The note's descriptor: for each field, the distance from it to what it is named after.
struct Inspection {
  std::int64_t layout_number;
  std::int64_t page_map;
  std::int64_t page_heap;
  std::int64_t given_back_bytes;
  std::int64_t options;
  std::int64_t options_were_set;
  std::int64_t attention;
  std::int64_t samples;
  std::int64_t module_table;
};
inline constexpr char inspection_name[] = "tsmalloc";
inline constexpr std::uint32_t inspection_type = 1;

// Puts the note into the object file of the calling function.
[[gnu::always_inline]] inline void leave_inspection_note() noexcept {
  static_assert(sizeof inspection_name == 9 && sizeof(Inspection) == 72 && inspection_type == 1);
  asm volatile(
      ".pushsection .note.tsmalloc, \"a\", %%note\n"
      ".balign 4\n"
      ".4byte 9, 72, 1\n"
      ".asciz \"tsmalloc\"\n"
      ".balign 4\n"
      ".8byte _ZN2ts6engine13layout_numberE - .\n"
      ".8byte _ZN2ts6engine8page_mapE - .\n"
      ".8byte _ZN2ts6engine9page_heapE - .\n"
      ".8byte _ZN2ts6engine16given_back_bytesE - .\n"
      ".8byte _ZN2ts15current_optionsE - .\n"
      ".8byte _ZN2ts6engine16options_were_setE - .\n"
      ".8byte _ZN2ts6engine9attentionE - .\n"
      ".8byte _ZN2ts6engine7samplesE - .\n"
      ".8byte _ZN2ts2os12module_tableE - .\n"
      ".popsection"
      :
      // so that the compiler keeps what nothing else refers to
      : "g"(&page_map), "g"(&page_heap), "g"(&given_back_bytes), "g"(&current_options),
        "g"(&options_were_set), "g"(&attention), "g"(&samples), "g"(&os::module_table));
}

}  // namespace ts::engine
