// Stresses what a server's requests do to a heap: each builds a tree of 20 to 200 small objects and
// drops it; one in 32 also works in a buffer of 64 to 512 KiB. Results live in a cache of 4,096 per
// thread, from which a new one evicts the least recently used. One in 16 goes to another thread,
// which deletes it. Small objects of all ages are next to each other, which decides the peak. Uses
// new and delete, with the size where the program knows it. Leaves out waiting: real servers are
// idle most of the time. An operation is a request; each object's head and last byte are written,
// and read before it is deleted.
#include <atomic>
#include <bit>
#include <new>

#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

// An object of `bytes` bytes begins with this and ends with its mark.
struct Object {
  Object* first;  // trees: the first child. Cache: the one used before
  Object* next;   // trees: the next sibling. Cache: the one used after
  std::uint32_t bytes;
  std::uint32_t key;

  unsigned char& last() { return reinterpret_cast<unsigned char*>(this)[bytes - 1]; }
};

constexpr std::size_t least_object_bytes = 32;
static_assert(sizeof(Object) < least_object_bytes);

// Real sizes cluster around a small middle and have a long tail: the octave is the sum of six coins
// that show heads once in four. So two in three objects have 64 to 255 bytes, and one in 200 has 1
// to 4 KiB.
std::size_t pick_object_bytes(Random& random) {
  const std::uint64_t coins = random.next();
  const std::size_t base = least_object_bytes << std::popcount((coins >> 58) & (coins >> 52));
  return base + pick(random, base);
}
// A result worth keeping is larger than its parts.
std::size_t pick_result_bytes(Random& random) { return 4 * pick_object_bytes(random); }

Object* create(std::size_t bytes, std::size_t key) {
  auto* const object = static_cast<Object*>(::operator new(bytes));
  *object = {nullptr, nullptr, static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(key)};
  object->last() = mark_of(key);
  return object;
}

void destroy(Object* object) {
  if (object == nullptr) return;
  if (object->last() != mark_of(object->key)) fail("the content of a live object changed");
  object->last() = 0;  // so that a second holder of the same object would be detected
  ::operator delete(object, std::size_t{object->bytes});
}

Object* build_tree(Random& random) {
  Object* recent[8];
  Object* const root = create(pick_object_bytes(random), 0);
  for (Object*& object : recent) object = root;
  const std::size_t nodes = 20 + pick(random, 181);
  for (std::size_t i = 1; i < nodes; ++i) {
    Object* const parent = recent[pick(random, 8)];
    Object* const child = create(pick_object_bytes(random), i);
    child->next = parent->first;
    parent->first = child;
    recent[i % 8] = child;
  }
  return root;
}

// Parents before children: the objects still to be destroyed are linked by `next`.
void destroy_tree(Object* root) {
  Object* left = root;
  while (left != nullptr) {
    Object* const object = left;
    left = object->next;
    Object* last_child = object->first;
    if (last_child != nullptr) {
      while (last_child->next != nullptr) last_child = last_child->next;
      last_child->next = left;
      left = object->first;
    }
    destroy(object);
  }
}

// Objects by key, in a list from the most to the least recently used one.
class Cache {
 public:
  static constexpr std::size_t keys = 16'384;
  static constexpr std::size_t max_objects = 4'096;

  Object* find(std::size_t key) {
    Object* const object = by_key_[key];
    if (object == nullptr) return nullptr;
    unlink(object);
    link(object);
    return object;
  }

  void insert(Object* object) {
    by_key_[object->key] = object;
    link(object);
    if (++count_ > max_objects) remove(last_);
  }

  void clear() {
    while (last_ != nullptr) remove(last_);
  }

 private:
  void remove(Object* object) {
    unlink(object);
    by_key_[object->key] = nullptr;
    --count_;
    destroy(object);
  }
  void link(Object* object) {
    object->first = nullptr;
    object->next = first_;
    (first_ != nullptr ? first_->first : last_) = object;
    first_ = object;
  }
  void unlink(Object* object) {
    (object->first != nullptr ? object->first->next : first_) = object->next;
    (object->next != nullptr ? object->next->first : last_) = object->first;
  }

  Object* first_ = nullptr;
  Object* last_ = nullptr;
  std::size_t count_ = 0;
  Object* by_key_[keys] = {};
};

// Where a thread leaves an object and takes whatever it finds.
struct alignas(128) Desk {
  std::atomic<Object*> object;
};
constexpr std::size_t desk_count = 8;
Desk desks[desk_count];

constexpr std::size_t least_buffer_bytes = std::size_t{64} << 10;
constexpr std::size_t most_buffer_bytes = std::size_t{512} << 10;

void work_in_buffer(Random& random) {
  const std::size_t bytes =
      least_buffer_bytes + pick(random, most_buffer_bytes - least_buffer_bytes);
  auto* const buffer = static_cast<unsigned char*>(::operator new(bytes));
  touch(buffer, bytes, 1);
  if (buffer[bytes - 1] != 1) fail("the content of a live buffer changed");
  ::operator delete(buffer, bytes);
}

// Small keys are more frequent than large ones: the smaller of two numbers.
std::size_t pick_key(Random& random) {
  const std::size_t one = pick(random, Cache::keys);
  const std::size_t other = pick(random, Cache::keys);
  return one < other ? one : other;
}

void serve(std::size_t requests, Cache& cache, std::uint64_t seed) {
  Random random{seed};
  for (std::size_t i = 0; i < requests; ++i) {
    Object* const tree = build_tree(random);
    if (i % 32 == 0) work_in_buffer(random);
    const std::size_t key = pick_key(random);
    if (i % 16 == 0) {
      // acq_rel: the writes of the thread that left the object come before our delete
      destroy(desks[pick(random, desk_count)].object.exchange(
          create(pick_result_bytes(random), key), std::memory_order_acq_rel));
    } else if (cache.find(key) == nullptr) {
      cache.insert(create(pick_result_bytes(random), key));
    }
    destroy_tree(tree);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Requests, each a tree of objects, beside caches of results."};
  const std::size_t threads = positive(arguments, "threads", 2, "threads");
  const std::size_t requests = positive(arguments, "requests", 100'000, "per thread");
  const std::uint64_t seed = arguments.number("seed", 1, "of all choices");
  arguments.finish();

  MappedArray<Cache> caches{threads};
  const double seconds = ts::test::run_team(threads, [&](std::uint32_t thread) {
    serve(requests, caches[thread], seed_of(seed, thread));
  });
  for (Cache& cache : caches) cache.clear();
  for (const Desk& desk : desks) destroy(desk.object.load(std::memory_order_relaxed));
  report(threads * requests, seconds);
  return 0;
}
