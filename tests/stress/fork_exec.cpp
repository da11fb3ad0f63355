// The fork drill (fork_drill.h) of malloc: run this under each drop-in library.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "programs/support/arguments.h"
#include "stress/fork_drill.h"

namespace ts::stress {
namespace {

// Every function of the family that returns a block.
Block make_block(test::Random& random) {
  const std::size_t bytes = random.one_in(50) ? random.below(300'000) : random.below(2'000);
  void* address = nullptr;
  switch (random.below(4)) {
    case 0:
      address = std::calloc(1, bytes);
      break;
    case 1:
      address = std::realloc(std::malloc(bytes / 2 + 1), bytes + 1);
      break;
    case 2:
      address = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
      break;
    default:
      address = std::malloc(bytes);
  }
  if (address == nullptr) {
    std::fputs("FAILED: malloc returned null\n", stderr);
    std::_Exit(1);
  }
  return {.address = static_cast<char*>(address), .bytes = bytes, .key = 0, .heap = 0};
}

void release_block(const Block& block) { std::free(block.address); }

// The preloaded library, for messages.
std::string_view allocator_name() {
  const char* const preload = std::getenv("LD_PRELOAD");
  std::string_view path{preload == nullptr || *preload == '\0' ? "glibc" : preload};
  path.remove_prefix(path.rfind('/') + 1);
  return path;
}

}  // namespace
}  // namespace ts::stress

int main(int argc, char** argv) {
  using namespace ts::stress;
  ts::test::Arguments arguments{argc, argv,
                                "Forks from a program full of threads that use malloc."};
  const Drill drill{.forks = arguments.number("forks", 100, "children"),
                    .threads = arguments.number("threads", 8, "threads that work meanwhile"),
                    .seed = arguments.number("seed", 1, "of what the threads do")};
  arguments.finish();
  return run_drill({allocator_name().data(), make_block, release_block}, drill);
}
