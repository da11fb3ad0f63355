// Interprets any bytes as a program under the hardened heap (play.h). There is one per process, so
// each input frees all memory, and starts with the slabs and the quarantine that earlier inputs
// left.
#include <cstdio>

#include "fuzz/play.h"
#include "fuzz/target.h"
#include "secure/secure.h"

namespace ts::fuzz {
namespace {

constinit LibcRules<secure::Secure> allocator;

}  // namespace

bool report_totals() {
  print_totals();
  std::printf("\n");
  return totals_are_complete();
}

}  // namespace ts::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ts::fuzz::make_ready(ts::fuzz::allocator);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ts;
  fuzz::Input input{data, size};
  fuzz::Play<secure::Secure>{fuzz::allocator, input}.run();
  return 0;
}
