// A C++ program that has the engine linked in. It needs as little of the C++ runtime as can be, so that
// a static one has no more than what the engine asks for: without that, running out of memory would end
// the process.
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#include "check.h"

extern "C" std::size_t malloc_good_size(std::size_t bytes);

namespace {

const std::size_t too_many = opaque(PTRDIFF_MAX / 2);

void new_is_ours() {
  for (std::size_t bytes = 1; bytes < 100000; bytes += 1 + bytes / 3) {
    char* const block = new char[bytes];
    EXPECT(malloc_usable_size(block) == malloc_good_size(bytes),
           "%zu usable bytes of new char[%zu]", malloc_usable_size(block), bytes);
    fill(block, bytes, bytes);
    EXPECT(first_damage(block, bytes, bytes) == bytes, "the contents changed");
    delete[] block;
  }
  struct alignas(512) Aligned {
    char text[512];
  };
  auto* const aligned = static_cast<Aligned*>(opaque_pointer(new Aligned));
  EXPECT(reinterpret_cast<std::uintptr_t>(aligned) % 512 == 0, "%p", static_cast<void*>(aligned));
  delete aligned;
}

void new_throws_bad_alloc() {
  bool caught = false;
  try {
    delete[] static_cast<char*>(opaque_pointer(new char[too_many]));
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  EXPECT(caught, "no bad_alloc");
}

void nothrow_new_returns_null() {
  char* const block = new (std::nothrow) char[too_many];
  EXPECT(block == nullptr, "%p", static_cast<void*>(block));
}

int handler_calls = 0;

void new_handler_is_called() {
  std::set_new_handler([] {
    if (++handler_calls == 3) throw 42;
  });
  int caught = 0;
  try {
    delete[] static_cast<char*>(opaque_pointer(new char[too_many]));
  } catch (int thrown) {
    caught = thrown;
  }
  EXPECT(handler_calls == 3 && caught == 42, "%d calls, %d thrown", handler_calls, caught);
}

void* replace_blocks(void* argument) {
  auto** const blocks = static_cast<std::uint64_t**>(argument);
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT(*blocks[i] == i, "block %zu holds %zu", i, std::size_t(*blocks[i]));
    delete blocks[i];
    blocks[i] = new std::uint64_t{i + 1};
  }
  return nullptr;
}

void blocks_cross_threads() {
  for (int round = 0; round < 50; ++round) {
    std::uint64_t* blocks[1000];
    for (std::size_t i = 0; i < COUNT_OF(blocks); ++i) blocks[i] = new std::uint64_t{i};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, replace_blocks, blocks) == 0, "pthread_create");
    pthread_join(thread, nullptr);
    for (std::size_t i = 0; i < COUNT_OF(blocks); ++i) {
      EXPECT(*blocks[i] == i + 1, "block %zu holds %zu", i, std::size_t(*blocks[i]));
      delete blocks[i];
    }
  }
}

// A child of a program whose threads are at work.
void children_allocate() {
  std::uint64_t* blocks[1000];
  for (std::size_t i = 0; i < COUNT_OF(blocks); ++i) blocks[i] = new std::uint64_t{0};
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, nullptr,
              [](void*) -> void* {
                for (int i = 0; i < 200'000; ++i)
                  delete static_cast<int*>(opaque_pointer(new int{i}));
                return nullptr;
              },
              nullptr) == 0,
          "pthread_create");
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0, "fork");
    if (child == 0) {
      alarm(20);
      new_is_ours();
      for (std::uint64_t* block : blocks) delete block;
      _exit(check_has_failed() ? 1 : 0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child, "waitpid");
    EXPECT(status == 0, "child %d ended with status %#x", i, static_cast<unsigned>(status));
  }
  pthread_join(thread, nullptr);
  for (std::uint64_t* block : blocks) delete block;
}

void reports_are_its_own() {
  constexpr std::size_t large = 8 << 20;
  const struct mallinfo2 before = mallinfo2();
  char* const block = new char[large];
  const struct mallinfo2 with = mallinfo2();
  EXPECT(with.uordblks + with.hblkhd >= before.uordblks + before.hblkhd + large,
         "mallinfo2 does not count a block");
  delete[] static_cast<char*>(opaque_pointer(block));
  EXPECT(static_cast<unsigned>(malloc_trim(0)) <= 1, "malloc_trim is neither 0 nor 1");
}

constexpr Check checks[] = {
    {"new allocates from it", new_is_ours},
    {"new throws bad_alloc", new_throws_bad_alloc},
    {"nothrow new returns null", nothrow_new_returns_null},
    {"the new-handler is called", new_handler_is_called},
    {"blocks cross threads", blocks_cross_threads},
    {"children allocate", children_allocate},
    {"the reports are its own", reports_are_its_own},
};

}  // namespace

CHECK_MAIN(checks)
