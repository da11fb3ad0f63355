// Every replaceable operator new and delete: sizes, alignments, failure by exception or null, and
// the new-handler.
#include <dlfcn.h>

#include <cstdint>
#include <initializer_list>
#include <new>

#include "check.h"

namespace {

// A form of new with a form of delete that may free its block.
struct Form {
  const char* name;
  void* (*create)(std::size_t bytes, std::size_t alignment);
  void (*destroy)(void* block, std::size_t bytes, std::size_t alignment);
  bool aligned;
  bool throws;
};

constexpr std::align_val_t as_alignment(std::size_t n) { return static_cast<std::align_val_t>(n); }

using Size = std::size_t;
const Form forms[] = {
    {"new, delete", [](Size n, Size) { return ::operator new(n); },
     [](void* p, Size, Size) { ::operator delete(p); }, false, true},
    {"new, sized delete", [](Size n, Size) { return ::operator new(n); },
     [](void* p, Size n, Size) { ::operator delete(p, n); }, false, true},
    {"new[], delete[]", [](Size n, Size) { return ::operator new[](n); },
     [](void* p, Size, Size) { ::operator delete[](p); }, false, true},
    {"new[], sized delete[]", [](Size n, Size) { return ::operator new[](n); },
     [](void* p, Size n, Size) { ::operator delete[](p, n); }, false, true},
    {"nothrow new, nothrow delete", [](Size n, Size) { return ::operator new(n, std::nothrow); },
     [](void* p, Size, Size) { ::operator delete(p, std::nothrow); }, false, false},
    {"nothrow new, delete", [](Size n, Size) { return ::operator new(n, std::nothrow); },
     [](void* p, Size, Size) { ::operator delete(p); }, false, false},
    {"nothrow new[], nothrow delete[]",
     [](Size n, Size) { return ::operator new[](n, std::nothrow); },
     [](void* p, Size, Size) { ::operator delete[](p, std::nothrow); }, false, false},
    {"aligned new, aligned delete",
     [](Size n, Size a) { return ::operator new(n, as_alignment(a)); },
     [](void* p, Size, Size a) { ::operator delete(p, as_alignment(a)); }, true, true},
    {"aligned new, sized aligned delete",
     [](Size n, Size a) { return ::operator new(n, as_alignment(a)); },
     [](void* p, Size n, Size a) { ::operator delete(p, n, as_alignment(a)); }, true, true},
    {"aligned new[], aligned delete[]",
     [](Size n, Size a) { return ::operator new[](n, as_alignment(a)); },
     [](void* p, Size, Size a) { ::operator delete[](p, as_alignment(a)); }, true, true},
    {"aligned new[], sized aligned delete[]",
     [](Size n, Size a) { return ::operator new[](n, as_alignment(a)); },
     [](void* p, Size n, Size a) { ::operator delete[](p, n, as_alignment(a)); }, true, true},
    {"aligned nothrow new, aligned nothrow delete",
     [](Size n, Size a) { return ::operator new(n, as_alignment(a), std::nothrow); },
     [](void* p, Size, Size a) { ::operator delete(p, as_alignment(a), std::nothrow); }, true,
     false},
    {"aligned nothrow new[], aligned nothrow delete[]",
     [](Size n, Size a) { return ::operator new[](n, as_alignment(a), std::nothrow); },
     [](void* p, Size, Size a) { ::operator delete[](p, as_alignment(a), std::nothrow); }, true,
     false},
};

CHECK("every form of new and delete") {
  for (const Form& form : forms) {
    for (Size alignment = form.aligned ? 8 : 16; alignment <= (form.aligned ? 65536U : 16U);
         alignment *= 2) {
      for (Size bytes : {Size{0}, Size{1}, Size{24}, Size{100}, Size{4096}, Size{100000}}) {
        void* first = form.create(bytes, alignment);
        void* second = form.create(bytes, alignment);
        REQUIRE(first != nullptr && second != nullptr, "%s: null for %zu bytes", form.name, bytes);
        EXPECT(first != second, "%s: twice the same block of %zu bytes", form.name, bytes);
        const Size expected_alignment = form.aligned ? alignment : natural_alignment(bytes);
        EXPECT(reinterpret_cast<std::uintptr_t>(first) % expected_alignment == 0,
               "%s: %p for alignment %zu", form.name, first, expected_alignment);
        fill(first, bytes, 1);
        fill(second, bytes, 2);
        EXPECT_FILLED(first, bytes, 1);
        form.destroy(first, bytes, alignment);
        form.destroy(second, bytes, alignment);
      }
    }
    form.destroy(nullptr, 0, 64);
  }
}

// Calls `form` with an impossible size; true if it failed the way it must.
bool fails_properly(const Form& form, Size bytes) {
  try {
    void* block = form.create(opaque(bytes), 64);
    return block == nullptr && !form.throws;
  } catch (const std::bad_alloc&) {
    return form.throws;
  }
}

CHECK("impossible sizes throw bad_alloc or return null") {
  for (const Form& form : forms) {
    for (Size bytes : {Size{PTRDIFF_MAX}, Size{PTRDIFF_MAX} + 1, SIZE_MAX - 64}) {
      EXPECT(fails_properly(form, bytes), "%s of %zu bytes did not %s", form.name, bytes,
             form.throws ? "throw std::bad_alloc" : "return null");
    }
  }
}

CHECK("SIZE_MAX bytes throw bad_alloc or return null") {
  if (find_function("malloc") == nullptr)
    skip_check("a static program cannot say whose new it has");
  Dl_info aligned_new;
  Dl_info runtime;
  REQUIRE(dladdr(find_function("_ZnwmSt11align_val_t"), &aligned_new) != 0 &&
              dladdr(find_function("_ZSt15get_new_handlerv"), &runtime) != 0,
          "dladdr failed");
  const bool is_libstdcxx = aligned_new.dli_fbase == runtime.dli_fbase;
  for (const Form& form : forms) {
    if (form.aligned && is_libstdcxx)
      continue;  // gcc 12's own rounds SIZE_MAX up to a multiple of the alignment: to 0
    EXPECT(fails_properly(form, SIZE_MAX), "%s of SIZE_MAX bytes did not %s", form.name,
           form.throws ? "throw std::bad_alloc" : "return null");
  }
}

int handler_calls;

void give_up_at_third_call() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}

CHECK("the new-handler is called until it gives up") {
  for (const Form& form : forms) {
    handler_calls = 0;
    std::set_new_handler(give_up_at_third_call);
    EXPECT(fails_properly(form, PTRDIFF_MAX), "%s: failed wrongly after its handler gave up",
           form.name);
    EXPECT(handler_calls == 3, "%s: the handler was called %d times instead of 3", form.name,
           handler_calls);
    std::set_new_handler(nullptr);
  }
}

// Alignments that no type can have. Like libstdc++, we fail without calling a handler, which could
// not help. Small powers of two are covered by malloc's alignment.
CHECK("aligned new takes powers of two alone") {
  for (const Form& form : forms) {
    if (!form.aligned) continue;
    handler_calls = 0;
    std::set_new_handler(give_up_at_third_call);
    for (Size alignment : {Size{0}, Size{3}, Size{12}, Size{24}, Size{48}, Size{4097}, SIZE_MAX}) {
      bool is_thrown = false;
      void* block = nullptr;
      try {
        block = form.create(100, opaque(alignment));
      } catch (const std::bad_alloc&) {
        is_thrown = true;
      }
      EXPECT(block == nullptr && is_thrown == form.throws, "%s with alignment %zu is %p", form.name,
             alignment, block);
    }
    EXPECT(handler_calls == 0, "%s: the handler was called", form.name);
    std::set_new_handler(nullptr);
    for (Size alignment : {Size{1}, Size{2}, Size{4}, Size{8}}) {
      void* block = form.create(100, opaque(alignment));
      REQUIRE(block != nullptr, "%s: null for alignment %zu", form.name, alignment);
      fill(block, 100, alignment);
      form.destroy(block, 100, alignment);
    }
  }
}

struct HandlerFailure : std::bad_alloc {};

void throw_from_handler() {
  ++handler_calls;
  throw HandlerFailure{};
}

CHECK("the new-handler throws") {
  for (const Form& form : forms) {
    handler_calls = 0;
    std::set_new_handler(throw_from_handler);
    EXPECT(fails_properly(form, PTRDIFF_MAX), "%s: did not %s when its handler threw", form.name,
           form.throws ? "let the exception pass" : "return null");
    EXPECT(handler_calls == 1, "%s: the handler was called %d times instead of once", form.name,
           handler_calls);
    std::set_new_handler(nullptr);
  }
}

}  // namespace
