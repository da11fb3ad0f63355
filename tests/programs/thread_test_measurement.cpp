// Fourth program of the source reports, experiment X2: four threads with 20,000 allocations each,
// of varying sizes; even-numbered threads also free others' blocks. Prints the execution time, the
// size of the data segment, and the counts that explain them.
#include "programs/allocator.h"
#include "programs/measurement.h"

int main(int argc, char** argv) {
  using namespace ts::test;
  Arguments arguments{argc, argv, "Experiment X2: time and data segment of threads that allocate."};
  const MeasurementOptions options = MeasurementOptions::from(arguments);
  constexpr std::size_t usual_growth_bytes = 131'072;  // in glibc, and in our libraries
  const std::size_t growth =
      arguments.number("growth", usual_growth_bytes,
                       "bytes that the heap asks the system for at a time, at least; 0: exactly "
                       "what is missing, as the reports' heaps");
  arguments.finish();

  struct Heap {
    static void* allocate(std::size_t bytes) { return ts::test::allocate(bytes); }
    static void release(void* block) { ts::test::release(block); }
  };
  prepare_allocator();
  if (growth != usual_growth_bytes && !set_growth(growth))
    arguments.fail("cannot be chosen for", allocator_name, "growth");
  run_measurement(options, Heap{}, [&](const MeasurementFigures& figures) {
    const SegmentFigures segment = segment_figures();
    print_measurement(allocator_name, options, figures, segment.segment_bytes, segment.free_bytes,
                      segment.sbrk_calls);
  });
  return 0;
}
