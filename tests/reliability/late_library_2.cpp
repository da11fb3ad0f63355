// A second library with a late static (late_calls.h).
#include "late_calls.h"

namespace {

const LateCalls in_library{'2'};

}  // namespace

void second_late_library() {}
