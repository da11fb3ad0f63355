// Handles each request of a server in an arena. The handler is ordinary code with ordinary
// containers; what it allocates and leaks is freed with the request. What must outlive the request is
// allocated in the scope of NULL. Without the engine, the program works as well, but leaks the rest.
//
//     LD_PRELOAD=libtsmalloc.so example-scopes
#include <cstdio>
#include <map>
#include <memory_resource>
#include <string>
#include <tsmalloc/memory_resource.hpp>
#include <vector>

namespace {

// Counts of words over all requests; lives as long as the program.
std::map<std::string, int> seen;

// Knows nothing of arenas. It never frees its index.
int handle(const std::string& request) {
  auto* const words = new std::vector<std::string>;
  std::string word;
  for (const char c : request + ' ') {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words->push_back(word);
      word.clear();
    }
  }
  auto* const index = new std::map<std::string, std::vector<std::size_t>>;
  for (std::size_t i = 0; i < words->size(); ++i) (*index)[(*words)[i]].push_back(i);
  {
    const ts::scope outside{nullptr};
    for (const auto& [text, places] : *index) seen[text] += static_cast<int>(places.size());
  }
  return static_cast<int>(index->size());
}

}  // namespace

int main() {
  ts::arena_resource arena;
  int distinct = 0;
  for (int i = 0; i < 1000; ++i) {
    {
      const ts::scope inside{arena};
      distinct += handle("the request of number " + std::to_string(i) +
                         " is the same request as the one before it");
    }
    ts_arena_usage usage{};
    if (i == 0 && arena.arena() != nullptr && ts_arena_stats(arena.arena(), &usage) == 0)
      std::printf("a request leaves %zu bytes, which the arena takes back\n", usage.used_bytes);
    arena.release();
  }
  // The same with a container that takes a memory resource.
  std::pmr::vector<std::pmr::string> lines{&arena};
  for (int i = 0; i < 100; ++i) lines.emplace_back("a line with a block of its own in the arena");
  std::printf("%d distinct words of all requests, %zu seen, %zu lines\n", distinct, seen.size(),
              lines.size());
  return seen.size() == 1000 + 10 && seen["request"] == 2000 ? 0 : 1;
}
