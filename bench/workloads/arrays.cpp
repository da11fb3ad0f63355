// Stresses where large blocks begin: arrays of one size are added element by element, as numeric
// programs do with many fields of one grid. Arrays that all begin at a page boundary share the few
// lines of one set of the L1 cache: each line is fetched again for each of its elements. Leaves out
// the cost of malloc: all arrays are freed and allocated again only a few times. An
// operation is an element read.
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t max_arrays = 256;
double* arrays[max_arrays];

// Small integers, so that sums are exact.
double element_of(std::size_t array, std::size_t index) {
  return static_cast<double>(array + index % 8);
}

double* take_array(std::size_t elements, std::size_t number) {
  auto* const array = static_cast<double*>(std::malloc(elements * sizeof(double)));
  if (array == nullptr) fail("malloc returned null");
  for (std::size_t i = 0; i < elements; ++i) array[i] = element_of(number, i);
  return array;
}

double sum_of_all(std::size_t count, std::size_t elements) {
  double sum = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    double here = 0;
    for (std::size_t array = 0; array < count; ++array) here += arrays[array][i];
    sum += here;
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Arrays of one size are added element by element."};
  const std::size_t count = positive(arguments, "arrays", 18, "side by side, at most 256");
  const std::size_t elements =
      positive(arguments, "elements", 100'000, "of 8 bytes, of each array");
  const std::size_t times = positive(arguments, "times", 5, "the arrays are allocated anew");
  const std::size_t sums = positive(arguments, "sums", 40, "each time");
  arguments.finish();
  if (count > max_arrays) arguments.fail("is at most", "256", "arrays");
  if (elements > (std::size_t{1} << 40)) arguments.fail("is too large", "2^40", "elements");

  double expected = 0;
  for (std::size_t array = 0; array < count; ++array)
    for (std::size_t i = 0; i < elements; ++i) expected += element_of(array, i);
  const Stopwatch watch;
  for (std::size_t time = 0; time < times; ++time) {
    for (std::size_t array = 0; array < count; ++array) arrays[array] = take_array(elements, array);
    for (std::size_t i = 0; i < sums; ++i)
      if (sum_of_all(count, elements) != expected) fail("the content of an array changed");
    for (std::size_t array = 0; array < count; ++array) std::free(arrays[array]);
  }
  report(count * elements * times * sums, watch.seconds());
  return 0;
}
