// A program that replaces only the two plain operators, as the standard allows: all other forms
// forward to them, so its blocks never reach the allocator's own delete, nor the other way round.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "check.h"

namespace {

// Written before each block of ours; a block without it came from elsewhere.
struct alignas(16) Mark {
  std::uint64_t value;
};
constexpr std::uint64_t mark_of_ours = 0x6f757273'6f757273;

int created;
int destroyed;

}  // namespace

void* operator new(std::size_t bytes) {
  auto* mark =
      static_cast<Mark*>(bytes > PTRDIFF_MAX ? nullptr : std::malloc(sizeof(Mark) + bytes));
  if (mark == nullptr) throw std::bad_alloc{};
  mark->value = mark_of_ours;
  ++created;
  return mark + 1;
}

void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  Mark* mark = static_cast<Mark*>(block) - 1;
  REQUIRE(mark->value == mark_of_ours,
          "the program's operator delete got %p, which its operator new never gave", block);
  mark->value = 0;
  ++destroyed;
  std::free(mark);
}

namespace {

// Calls `create` and `destroy` once and expects both to have reached the program's operators.
template <class Create, class Destroy>
void expect_forwarded(const char* form, Create create, Destroy destroy) {
  const int created_before = created;
  const int destroyed_before = destroyed;
  void* block = create();
  REQUIRE(block != nullptr, "%s: null", form);
  EXPECT(created == created_before + 1, "%s: %d calls of the program's operator new", form,
         created - created_before);
  destroy(opaque_pointer(block));
  EXPECT(destroyed == destroyed_before + 1, "%s: %d calls of the program's operator delete", form,
         destroyed - destroyed_before);
}

CHECK("the other forms forward to the program's operators") {
  expect_forwarded(
      "new[], delete[]", [] { return ::operator new[](100); },
      [](void* p) { ::operator delete[](p); });
  expect_forwarded(
      "new, sized delete", [] { return ::operator new(100); },
      [](void* p) { ::operator delete(p, std::size_t{100}); });
  expect_forwarded(
      "new[], sized delete[]", [] { return ::operator new[](100); },
      [](void* p) { ::operator delete[](p, std::size_t{100}); });
  expect_forwarded(
      "nothrow new, delete", [] { return ::operator new(100, std::nothrow); },
      [](void* p) { ::operator delete(p); });
  expect_forwarded(
      "nothrow new, nothrow delete", [] { return ::operator new(100, std::nothrow); },
      [](void* p) { ::operator delete(p, std::nothrow); });
  expect_forwarded(
      "nothrow new[], nothrow delete[]", [] { return ::operator new[](100, std::nothrow); },
      [](void* p) { ::operator delete[](p, std::nothrow); });
}

CHECK("nothrow forms catch what the program's operator throws") {
  EXPECT(::operator new(opaque(SIZE_MAX), std::nothrow) == nullptr, "not null");
  EXPECT(::operator new[](opaque(SIZE_MAX), std::nothrow) == nullptr, "not null");
}

CHECK("aligned forms stay the allocator's on both sides") {
  const int created_before = created;
  void* block = ::operator new(1000, std::align_val_t{256});
  EXPECT(reinterpret_cast<std::uintptr_t>(block) % 256 == 0, "%p", block);
  ::operator delete(block, std::size_t{1000}, std::align_val_t{256});
  EXPECT(created == created_before, "an aligned new called the plain one");
}

// Library algorithms mix forms: stable_sort calls nothrow new and plain delete.
CHECK("library code mixes forms") {
  std::vector<int> numbers(50000);
  uint64_t random = 17;
  for (int& number : numbers) number = static_cast<int>(next_random(&random) % 1000);
  std::stable_sort(numbers.begin(), numbers.end());
  EXPECT(std::is_sorted(numbers.begin(), numbers.end()), "not sorted");
  std::string text;
  for (int i = 0; i < 100000; ++i) text += 'x';
  EXPECT(text.size() == 100000, "%zu", text.size());
  EXPECT(created > 0 && destroyed > 0, "the program's operators were called %d and %d times",
         created, destroyed);
}

}  // namespace
