// A correct program that looks like misuse: it copies records without ever writing one of their
// fields. Their array lies where small blocks used to be, and the copies go to small blocks at
// those addresses, along with whatever an allocator left in that field.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t records = 2000;
constexpr std::size_t tries = 80 * records;

struct Record {
  long id;
  long note;  // never written
  char name[48];
};

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

Record* make(std::size_t count) {
  return static_cast<Record*>(std::malloc(count * sizeof(Record)));
}

}  // namespace

int main() {
  std::vector<Record*> small(tries / 2);
  for (Record*& record : small) record = make(1);
  for (Record* const record : small) std::free(record);

  Record* const array = make(records);
  const std::uintptr_t begin = address_of(array);
  for (std::size_t i = 0; i < records; ++i) {
    array[i].id = static_cast<long>(i);
    std::strcpy(array[i].name, "x");
  }
  Record* const kept = make(2 * records);
  std::memcpy(static_cast<void*>(kept), array, records * sizeof(Record));
  std::free(array);

  std::size_t at_former_place = 0;
  small.clear();
  while (small.size() < tries && at_former_place < records) {
    Record* const record = make(1);
    small.push_back(record);
    std::memset(static_cast<void*>(record), 0, sizeof *record);
    const std::uintptr_t offset = address_of(record) - begin;
    if (offset >= records * sizeof(Record) || offset % sizeof(Record) != 0) continue;
    ++at_former_place;
    std::memcpy(static_cast<void*>(record), kept + offset / sizeof(Record), sizeof *record);
  }
  for (Record* const record : small) std::free(record);
  std::free(kept);
  std::printf("%zu of %zu records were copied to their former places\n", at_former_place, records);
  return 0;
}
