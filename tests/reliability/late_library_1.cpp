// The library that holds the common part of late_calls.h, and a static of its own.
#include <unistd.h>

#include "every_function.h"
#include "late_calls.h"

namespace {

int report = -1;
const LateCalls in_library{'1'};

}  // namespace

void late_calls_report_to(int descriptor) { report = descriptor; }

void call_late(char letter) {
  if (report < 0) return;
  unsigned called = 0;
  if (use_every_function(find_in_program, &called) != nullptr || called < 20) letter = '?';
  if (write(report, &letter, 1) != 1) _exit(3);
}
