// A C++ module for plugins.c, as an extension of an interpreter written in C would be.
#include <algorithm>
#include <cstddef>
#include <map>
#include <new>
#include <string>

extern "C" int catches_bad_alloc(std::size_t bytes) {
  try {
    ::operator delete(::operator new(bytes));
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

extern "C" int builds_and_sorts(int count) {
  std::map<std::string, int> numbers;
  for (int i = 0; i < count; ++i) numbers[std::to_string(i)] = i;
  return numbers.size() == static_cast<std::size_t>(count) &&
         std::all_of(numbers.begin(), numbers.end(),
                     [](const auto& entry) { return std::to_string(entry.second) == entry.first; });
}
