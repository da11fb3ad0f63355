// Code whose stacks are compared, compiled by each compiler in several ways: shapes of frames and
// calls. It needs no header of ours but compare.h.
#include <pthread.h>
#include <search.h>

#include <algorithm>
#include <coroutine>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "unwind/compare.h"

#define NOINLINE __attribute__((noinline))

namespace {

// What the compiler must consider used; calls before it are no tail calls.
void use(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Frames of 123 sizes, up to two pages.
template <unsigned bytes>
NOINLINE unsigned deep(unsigned levels, unsigned kind) {
  char frame[bytes];
  use(frame);
  if (levels == 0) {
    compare_stacks();
  } else if (kind % 3 == 0) {
    deep<bytes>(levels - 1, kind / 3);
  } else if (kind % 3 == 1) {
    deep<bytes * 3 % 61 * 134 + 8>(levels - 1, kind / 3);
  } else {
    deep<bytes * 7 % 61 * 8 + 1>(levels - 1, kind / 3);
  }
  use(frame);
  return levels;
}

// Each level calls one of a fixed set of others.
NOINLINE void recurse(unsigned levels, unsigned random);
NOINLINE void with_alloca(unsigned levels, unsigned random) {
  auto* const memory = static_cast<char*>(__builtin_alloca(1 + random % 3000));
  std::memset(memory, 1, 1 + random % 3000);
  recurse(levels, random);
  use(memory);
}
NOINLINE void realigned(unsigned levels, unsigned random) {
  alignas(64) char memory[128];
  use(memory);
  recurse(levels, random);
  use(memory);
}
NOINLINE int realigned_with_alloca(int a, int b, int c, int d, int e, int f, int g, int h,
                                   unsigned levels, unsigned random) {
  alignas(128) char memory[128];
  use(memory);
  auto* const more = static_cast<char*>(__builtin_alloca(1 + random % 300));
  use(more);
  recurse(levels, random);
  use(memory);
  use(more);
  return a + b + c + d + e + f + g + h;
}
NOINLINE void large(unsigned levels, unsigned random) {
  char memory[100'000];
  use(memory);
  recurse(levels, random);
  use(memory);
}
// All registers are in use across the call.
NOINLINE std::uint64_t busy(unsigned levels, unsigned random) {
  std::uint64_t v[12];
  for (unsigned i = 0; i < 12; ++i) v[i] = random * (i + 3);
  for (unsigned i = 0; i < 3; ++i) {
    for (unsigned j = 0; j < 12; ++j) v[j] += v[(j + i + 1) % 12] >> (i + 1);
  }
  const std::uint64_t a = v[0], b = v[1], c = v[2], d = v[3], e = v[4], f = v[5], g = v[6];
  recurse(levels, random);
  return a + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + g * 17 + v[7] + v[8] + v[9];
}
NOINLINE void variadic(unsigned count, ...) {
  va_list arguments;
  va_start(arguments, count);
  const unsigned levels = va_arg(arguments, unsigned);
  const unsigned random = va_arg(arguments, unsigned);
  va_end(arguments);
  recurse(levels, random);
  use(&count);
}
NOINLINE void tail(unsigned levels, unsigned random) { recurse(levels, random); }
struct Base {
  virtual ~Base() = default;
  virtual void call(unsigned levels, unsigned random) = 0;
};
struct Derived : Base {
  void call(unsigned levels, unsigned random) override {
    const std::string text(random % 64, 'x');
    recurse(levels, random);
    use(text.data());
  }
};

NOINLINE void recurse(unsigned levels, unsigned random) {
  if (levels == 0) {
    compare_stacks();
    use(&levels);
    return;
  }
  const unsigned next = random * 1664525U + 1013904223U;
  switch ((random >> 16) % 9) {
    case 0:
      with_alloca(levels - 1, next);
      break;
    case 1:
      realigned(levels - 1, next);
      break;
    case 2:
      realigned_with_alloca(1, 2, 3, 4, 5, 6, 7, 8, levels - 1, next);
      break;
    case 3:
      large(levels - 1, next);
      break;
    case 4:
      busy(levels - 1, next);
      break;
    case 5:
      variadic(2, levels - 1, next, 3.0);
      break;
    case 6:
      tail(levels - 1, next);
      break;
    case 7:
      std::make_unique<Derived>()->call(levels - 1, next);
      break;
    default: {
      const std::function<void()> function = [=] { recurse(levels - 1, next); };
      function();
    }
  }
  use(&levels);
}

// While exceptions pass: in destructors and handlers.
struct Compares {
  ~Compares() { compare_stacks(); }
};
NOINLINE void throw_from(unsigned levels) {
  const Compares at_the_end;
  if (levels == 0) throw std::runtime_error{"on purpose"};
  throw_from(levels - 1);
}
NOINLINE void catch_at(unsigned levels) {
  try {
    throw_from(levels);
  } catch (const std::exception&) {
    compare_stacks();
    try {
      throw;
    } catch (...) {
      compare_stacks();
    }
  }
  use(&levels);
}

// Through libraries.
int compare_numbers(const void* a, const void* b) {
  compare_stacks();
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}
void visit_node(const void*, VISIT, int) { compare_stacks(); }
void free_node(void*) { compare_stacks(); }
NOINLINE void call_back() {
  std::vector<int> numbers(60);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i * 37 % 101);
  std::qsort(numbers.data(), numbers.size(), sizeof(int), compare_numbers);
  for (const int looked_for : numbers)
    use(std::bsearch(&looked_for, numbers.data(), numbers.size(), sizeof(int), compare_numbers));
  std::sort(numbers.begin(), numbers.end(), [](int a, int b) {
    compare_stacks();
    return a > b;
  });
  void* root = nullptr;
  for (int& number : numbers) tsearch(&number, &root, compare_numbers);
  twalk(root, visit_node);
  tdestroy(root, free_node);
  std::map<int, int, std::function<bool(int, int)>> map{[](int a, int b) {
    compare_stacks();
    return a < b;
  }};
  for (const int number : numbers) map[number] = 1;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { compare_stacks(); });
  std::once_flag flag;
  std::call_once(flag, [] { compare_stacks(); });
  std::thread{[] { recurse(12, 77); }}.join();
}

// C++ coroutines.
struct Task {
  struct promise_type {
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::abort(); }
  };
  std::coroutine_handle<promise_type> handle;
};
Task coroutine(unsigned levels) {
  compare_stacks();
  co_await std::suspend_always{};
  recurse(levels, levels);
  co_await std::suspend_always{};
  compare_stacks();
}
NOINLINE void resume_coroutines() {
  for (unsigned levels = 0; levels < 20; ++levels) {
    Task task = coroutine(levels);
    while (!task.handle.done()) task.handle.resume();
    task.handle.destroy();
  }
}

}  // namespace

void run_kernels() {
  for (unsigned levels = 0; levels < 80; ++levels) {
    for (unsigned kind = 0; kind < 25; ++kind) deep<16>(levels, kind * 7919);
  }
  for (unsigned random = 1; random <= 1500; ++random) recurse(random % 40, random * 2654435761U);
  for (unsigned levels = 0; levels < 40; ++levels) catch_at(levels);
  for (int i = 0; i < 5; ++i) call_back();
  resume_coroutines();
}
