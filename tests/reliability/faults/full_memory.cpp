// Full memory, under malloc as the program finds it: run this under each drop-in library. Every
// call by which the library asks the system for anything fails in turn (drill.h): in a running
// process, and from a process's first moment on.
//
//    full_memory          some calls of each place
//    full_memory --long   every call
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

#include "reliability/faults/drill.h"

extern char** environ;

namespace ts::faults {
namespace {

// ---- operator new ----

unsigned handler_calls = 0;
void give_up_at_last() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}

template <class Allocate, class Release>
const char* try_throwing(Allocate allocate_one, Release release_one) {
  handler_calls = 0;
  std::set_new_handler(give_up_at_last);
  const char* wrong = nullptr;
  try {
    void* const block = allocate_one();
    if (block == nullptr) wrong = "operator new returned null";
    static_cast<volatile char*>(block)[0] = 1;
    release_one(block);
  } catch (const std::bad_alloc&) {
    if (handler_calls != 3) wrong = "bad_alloc before the new-handler had given up";
  }
  std::set_new_handler(nullptr);
  return wrong;
}

const char* try_operators() {
  for (std::size_t bytes = 100; bytes < 20'000'000; bytes *= 4) {
    const char* const wrong = try_throwing([=] { return ::operator new(bytes); },
                                           [](void* block) { ::operator delete(block); });
    if (wrong != nullptr) return wrong;
    const char* const wrong_array = try_throwing([=] { return ::operator new[](bytes); },
                                                 [](void* block) { ::operator delete[](block); });
    if (wrong_array != nullptr) return wrong_array;
    handler_calls = 0;
    std::set_new_handler(give_up_at_last);
    void* const block = ::operator new(bytes, std::nothrow);
    if (block == nullptr && handler_calls != 3) return "a nothrow new gave up before its handler";
    ::operator delete(block, std::nothrow);
    std::set_new_handler(nullptr);
  }
  return nullptr;
}

constexpr World worlds[] = {
    {"the system as it is", false, false, 0},
    {"a break that does not move", true, false, 0},
    {"64 MB at once", false, false, 64 << 20},
};

// Allocators that found their addresses before anything was armed do not need it.
constexpr World other_world = {"no address of one's choice and 512 MB at once", false, true,
                               512 << 20};

// ---- from the first moment on ----

constexpr const char* start_variable = "FULL_MEMORY_FROM_START";
constinit Record start_record;
bool is_armed = false;

// Before the C library has set up its environment.
void arm_at_start(int, char**, char** environment) {
  const std::size_t length = std::strlen(start_variable);
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, start_variable, length) != 0) continue;
    const char* text = *entry + length + 1;
    const World& world = *text++ == 'o' ? other_world : worlds[0];
    unsigned first = 0;
    for (; *text >= '0' && *text <= '9'; ++text)
      first = first * 10 + static_cast<unsigned>(*text - '0');
    is_armed = true;
    arm({world, first, *text == '+' ? never : 1}, start_record);
  }
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_constructors)(int, char**, char**) = arm_at_start;

int try_start(char* program) {
  constexpr unsigned calls = 16;
  for (const World* world : {&worlds[0], &other_world}) {
    for (unsigned i = 0; i < 2 * calls; ++i) {
      char text[20];
      std::snprintf(text, sizeof text, "%c%u%s", world == &other_world ? 'o' : 's', i / 2,
                    i % 2 == 0 ? "" : "+");
      ::setenv(start_variable, text, 1);
      char* arguments[] = {program, nullptr};
      pid_t child = 0;
      if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0)
        return 1;
      int status = 0;
      ::waitpid(child, &status, 0);
      if (status == 0) continue;
      std::printf("FAILED: %s, %s, a process whose call %u%s fails: wait status %#x\n",
                  library_name(), world->name, i / 2, i % 2 == 0 ? "" : " and all after it",
                  static_cast<unsigned>(status));
      return 1;
    }
  }
  std::printf("%s, from the first moment on: %u processes, everything intact\n", library_name(),
              4 * calls);
  return 0;
}

}  // namespace
}  // namespace ts::faults

int main(int argc, char** argv) {
  using namespace ts::faults;
  // In such a case libstdc++ keeps memory for exceptions, which it could not get either, so no
  // operators are tried.
  if (is_armed) run_armed();
  const bool is_long = argc == 2 && std::strcmp(argv[1], "--long") == 0;
  if (argc != 1 && !is_long) {
    std::fprintf(stderr, "usage: %s [--long]\n", argv[0]);
    return 2;
  }
  const int drilled =
      run_drill(worlds, sizeof worlds / sizeof *worlds, is_long ? SIZE_MAX : 6, try_operators);
  return drilled != 0 ? drilled : try_start(argv[0]);
}
