// The end of the process and of threads in C++: destructors of statics and thread_locals, in the
// program and in a library, free and allocate long after main. A block that is damaged by then
// shows in the exit status.
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "exit_library.h"

namespace {

// Holds memory until static or thread-local destruction, verifies it there, and allocates once
// more.
class Holder {
 public:
  explicit Holder(std::size_t bytes) : bytes_{bytes}, block_{std::malloc(bytes)} {
    fill(block_, bytes_, bytes_);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    EXPECT(first_damage(block_, bytes_, bytes_) == bytes_,
           "a block of %zu bytes was overwritten before its destructor", bytes_);
    std::free(block_);
    void* late = std::malloc(bytes_ * 2);
    EXPECT(late != nullptr, "malloc is null in a destructor");
    fill(late, bytes_ * 2, 1);
    std::free(late);
    if (check_has_failed()) end_check();
  }

 private:
  std::size_t bytes_;
  void* block_;
};

Holder small_static{100};
Holder large_static{3000000};
std::map<int, std::string> static_map;
thread_local Holder thread_holder{500};
thread_local std::vector<std::string> thread_words;

void fill_everything() {
  for (int i = 0; i < 1000; ++i)
    static_map[i] = std::string(static_cast<std::size_t>(i % 100), 'x');
  library_keep(5000);
}

void at_exit() {
  std::vector<std::string> words;
  for (int i = 0; i < 1000; ++i) words.emplace_back(100, 'y');
  EXPECT(words.size() == 1000, "%zu", words.size());
  static_map[-1] = "a block that is newer than the handler";
}

// Ends the process here, by exit, so that everything above is destroyed within the check.
void exit_destroys() {
  fill_everything();
  REQUIRE(std::atexit(at_exit) == 0, "atexit failed");
  thread_words.assign(100, std::string(200, 'z'));
  opaque_pointer(&thread_holder);  // constructs it
  std::exit(check_has_failed() ? 1 : 0);
}

void return_destroys() {
  fill_everything();
  REQUIRE(std::atexit(at_exit) == 0, "atexit failed");
}

void use_thread_locals(int number) {
  thread_words.assign(100, std::string(static_cast<std::size_t>(100 + number), 'z'));
  EXPECT(thread_words.back().size() == static_cast<std::size_t>(100 + number), "%zu",
         thread_words.back().size());
  opaque_pointer(&thread_holder);  // constructs it
}

void thread_locals_are_destroyed() {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back(use_thread_locals, i);
    for (std::thread& thread : threads) thread.join();
  }
}

void threads_run_at_exit() {
  fill_everything();
  for (int i = 0; i < 4; ++i) {
    std::thread{[] {
      for (;;) {
        void* block = opaque_pointer(std::malloc(300));
        std::free(block);
      }
    }}.detach();
  }
  for (int i = 0; i < 1000; ++i) std::free(opaque_pointer(std::malloc(1000)));
  std::exit(check_has_failed() ? 1 : 0);
}

void quick_exit_runs_handlers() {
  REQUIRE(std::at_quick_exit(at_exit) == 0, "at_quick_exit failed");
  std::quick_exit(check_has_failed() ? 1 : 0);
}

const Check checks[] = {
    {"exit destroys statics that hold memory", exit_destroys},
    {"return from main destroys statics that hold memory", return_destroys},
    {"thread-locals that hold memory are destroyed", thread_locals_are_destroyed},
    {"threads allocate while the process exits", threads_run_at_exit},
    {"quick_exit runs handlers that allocate", quick_exit_runs_handlers},
};

}  // namespace

CHECK_MAIN(checks)
