// tsmalloc/memory_resource.hpp: std::pmr containers over an arena and over malloc, and standard
// library code that knows nothing of arenas, in an arena's scope. Without arenas, all but the
// scopes works the same.
#include <tsmalloc/memory_resource.hpp>
// First, to show that it needs no other header.
#include <cstring>
#include <list>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "check.h"

namespace {

bool are_expected() { return is_expected("ARENAS_EXPECTED", "ts_scope_enter"); }

std::size_t used_bytes(const ts::arena_resource& resource) {
  ts_arena_usage usage{};
  EXPECT(ts_arena_stats(resource.arena(), &usage) == 0, "busy");
  return usage.used_bytes;
}

struct alignas(256) Wide {
  char bytes[256];
};

void use_containers(std::pmr::memory_resource* resource) {
  std::pmr::map<int, std::pmr::string> map{resource};
  std::pmr::vector<std::pmr::string> vector{resource};
  std::pmr::unordered_map<std::pmr::string, int> hashed{resource};
  std::pmr::list<Wide> wide{resource};
  std::pmr::set<long> set{resource};
  for (int i = 0; i < 5000; ++i) {
    map.emplace(i, std::string(static_cast<std::size_t>(i % 300), 'x'));
    vector.emplace_back("a string that is longer than the string's own room: ")
        .append(std::to_string(i));
    hashed.emplace(vector.back(), i);
    if (i % 10 == 0) wide.emplace_back().bytes[0] = 'w';
    set.insert(i * 7919L % 1000);
    if (i % 3 == 0) map.erase(i / 2);
  }
  for (const Wide& w : wide)
    EXPECT(reinterpret_cast<std::uintptr_t>(&w) % 256 == 0, "%p is not aligned",
           static_cast<const void*>(&w));
  EXPECT(set.size() == 1000 && hashed.size() == 5000, "%zu, %zu", set.size(), hashed.size());
  EXPECT(hashed.at(vector[4321]) == 4321, "%d", hashed.at(vector[4321]));
}

CHECK("containers use an arena") {
  use_containers(ts::resource());
  ts::arena_resource arena;
  EXPECT((arena.arena() != nullptr) == are_expected(), "%p", static_cast<void*>(arena.arena()));
  for (int round = 0; round < 3; ++round) {
    use_containers(&arena);
    if (arena.arena() != nullptr) EXPECT(used_bytes(arena) == 0, "%zu bytes", used_bytes(arena));
    arena.release();
  }
  EXPECT(arena.is_equal(arena) && !arena.is_equal(*ts::resource()), "equal");
  EXPECT(ts::resource()->is_equal(*ts::resource()), "not equal");
}

// A container that is never destroyed.
CHECK("an arena frees what no one deallocates") {
  for (int round = 0; round < 5; ++round) {
    ts::arena_resource arena;
    void* const place = arena.allocate(sizeof(std::pmr::vector<std::pmr::string>), 16);
    auto* const vector = new (place) std::pmr::vector<std::pmr::string>{&arena};
    for (int i = 0; i < 20000; ++i) vector->emplace_back("a string that has a block of its own");
    if (arena.arena() != nullptr) EXPECT(used_bytes(arena) >= 20000 * 36, "too few bytes");
    if (round % 2 == 0) arena.release();
  }
}

CHECK("the standard library allocates in a scope") {
  ts::arena_resource arena;
  std::map<int, std::string>* map = nullptr;
  {
    const ts::scope inside{arena};
    EXPECT(inside.is_open() == are_expected(), "open: %d", inside.is_open() ? 1 : 0);
    map = new std::map<int, std::string>;
    for (int i = 0; i < 3000; ++i) map->emplace(i, std::string(100, 'x'));
    const ts::scope outside{nullptr};
    const std::string other(1000, 'y');
    if (inside.is_open()) {
      EXPECT(used_bytes(arena) >= 300000, "%zu bytes", used_bytes(arena));
      try {
        arena.release();
        EXPECT(false, "released in its scope");
      } catch (const std::system_error& error) {
        EXPECT(error.code().value() == EBUSY, "%s", error.what());
      }
      bool is_refused = false;
      std::thread{[&] {
        try {
          const ts::scope second{arena};
        } catch (const std::system_error& error) {
          is_refused = error.code().value() == EBUSY;
        }
      }}.join();
      EXPECT(is_refused, "two threads in one scope");
    }
  }
  std::thread{[&] { delete map; }}.join();
  if (arena.arena() != nullptr) EXPECT(used_bytes(arena) == 0, "%zu bytes", used_bytes(arena));
  EXPECT(ts_scope_leave() != 0, "a scope was left open");
}

// An exception leaves scopes, and may itself be allocated in the arena.
CHECK("exceptions leave scopes") {
  ts::arena_resource arena;
  for (int i = 0; i < 100; ++i) {
    try {
      const ts::scope inside{arena};
      throw std::runtime_error{std::string(200, 'e')};
    } catch (const std::exception& error) {
      EXPECT(std::strlen(error.what()) == 200, "%s", error.what());
    }
  }
  try {
    (void)arena.allocate(PTRDIFF_MAX);
    EXPECT(false, "impossible memory");
  } catch (const std::bad_alloc&) {
    EXPECT(ts_scope_leave() != 0, "a scope was left open");
  }
}

}  // namespace
