// A program that replaces the array forms, as the standard allows: the nothrow forms forward to
// them, so its blocks never reach the allocator's own delete[], nor the other way round.
#include <cstdint>
#include <cstdlib>
#include <new>

#include "check.h"

namespace {

struct alignas(64) Mark {
  std::uint64_t value;
};
constexpr std::uint64_t mark_of_ours = 0x61727261'61727261;

void* marked_block(std::size_t bytes, std::size_t alignment) {
  const std::size_t whole = (sizeof(Mark) + bytes + alignment - 1) / alignment * alignment;
  auto* const mark =
      static_cast<Mark*>(bytes > PTRDIFF_MAX / 2 ? nullptr : std::aligned_alloc(alignment, whole));
  if (mark == nullptr) throw std::bad_alloc{};
  mark->value = mark_of_ours;
  return mark + 1;
}

void release(void* block) {
  if (block == nullptr) return;
  Mark* const mark = static_cast<Mark*>(block) - 1;
  REQUIRE(mark->value == mark_of_ours,
          "the program's operator delete[] got %p, which its operator new[] never gave", block);
  mark->value = 0;
  std::free(mark);
}

}  // namespace

void* operator new[](std::size_t bytes) { return marked_block(bytes, alignof(Mark)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  REQUIRE(static_cast<std::size_t>(alignment) == alignof(Mark), "another alignment");
  return marked_block(bytes, alignof(Mark));
}
void operator delete[](void* block) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { release(block); }

namespace {

CHECK("nothrow forms of arrays forward to the program's operators") {
  constexpr std::align_val_t aligned{alignof(Mark)};
  ::operator delete[](opaque_pointer(::operator new[](100)));
  ::operator delete[](opaque_pointer(::operator new[](100, std::nothrow)));
  ::operator delete[](opaque_pointer(::operator new[](100, std::nothrow)), std::nothrow);
  ::operator delete[](opaque_pointer(::operator new[](100, std::nothrow)), std::size_t{100});
  ::operator delete[](opaque_pointer(::operator new[](100, aligned)), aligned);
  ::operator delete[](opaque_pointer(::operator new[](100, aligned, std::nothrow)), aligned);
  EXPECT(::operator new[](opaque(SIZE_MAX), std::nothrow) == nullptr, "not null");
  EXPECT(::operator new[](opaque(SIZE_MAX), aligned, std::nothrow) == nullptr, "not null");
}

CHECK("forms of single objects stay the allocator's") {
  void* const block = ::operator new(100, std::nothrow);
  REQUIRE(block != nullptr, "null");
  ::operator delete(opaque_pointer(block));
}

}  // namespace
