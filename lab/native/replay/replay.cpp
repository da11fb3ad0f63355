// replay: makes the calls of a recorded program, under whatever allocator is loaded.
//
// A program used to compare many allocators should do the same each time, and recorded ones do.
// replay has no C++ run-time library and calls malloc only for the trace's calls; tables are mapped
// (pages.h).
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/system.h"
#include "replay/image_run.h"
#include "replay/load.h"
#include "replay/machine_state.h"
#include "replay/pages.h"
#include "replay/report.h"
#include "replay/settings.h"

namespace ts {

const char* tool_name() { return "replay"; }

namespace replay {
namespace {

constexpr int exit_wrong = 2;

[[noreturn]] void refuse(const char* text) {
  dprintf(STDERR_FILENO, "replay: %s\n", text);
  _exit(exit_internal);
}

int exit_status(const ReplayContext& context) {
  int status = 0;
  for (std::size_t i = 0; i < context.plan.images(); ++i) {
    if (!is_right(context.plan.image(i), context.results[i])) status = exit_wrong;
  }
  if (status != 0) {
    dprintf(STDERR_FILENO,
            "replay: the calls differed from the recorded ones, or blocks were corrupt; see "
            "`matches`, `corrupt`, `misaligned` and `children` in the line.\n");
  }
  return status;
}

int run(int argument_count, char** arguments) {
  Request request;
  parse_request(argument_count, arguments, request);
  if (runs_one_at_a_time(request.settings.order)) make_repeatable(arguments);

  if (request.frames != 0) remember_own();
  plan::Plan plan;
  trace::Problem problem;
  if (!plan.load(request.trace, request.load, problem)) refuse(problem.text);
  Clock clock;
  if (request.settings.latency) clock.calibrate();
  ReplayContext context{plan, request.settings, request.tickets, clock};
  AddressLog log;
  const auto& calls = plan.image(0).totals.calls;
  std::uint64_t maximum = plan.image(0).live_objects;  // which are freed at the end
  for (const plan::Kind kind : {plan::Kind::malloc, plan::Kind::calloc, plan::Kind::aligned,
                                plan::Kind::realloc, plan::Kind::realloc, plan::Kind::free}) {
    maximum += calls[static_cast<std::size_t>(kind)];
  }
  if (const int error = log.open(request.addresses, maximum, request.frames)) {
    fail_internal("cannot write the addresses", error);
  }
  if (request.addresses != nullptr) context.log = &log;
  ImageRun first{context, 0, 0};
  first.run();
  if (const int error = log.close()) fail_internal("cannot write the addresses", error);
  if (const int error = write_report(STDOUT_FILENO, context, request, first)) {
    fail_internal("cannot write the result", error);
  }
  return exit_status(context);
}

}  // namespace
}  // namespace replay
}  // namespace ts

int main(int argument_count, char** arguments) {
  // Not by return: the allocator's exit handlers are not part of the replay.
  _exit(ts::replay::run(argument_count, arguments));
}
