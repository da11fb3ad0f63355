// Three fields of the line; see schedule_report.h.
#include "replay/schedule_report.h"

namespace ts::replay {
namespace {

void report_share(JsonLine& line, const Share& share) {
  line.begin_list();
  line.add(share.thread);
  line.add(share.tickets);
  line.add(static_cast<std::int64_t>(share.ticks));
  line.add(static_cast<std::int64_t>(share.skipped));
  line.add_decimal(share.owed);
  line.end_list();
}

// In order of number: those that have ended, and between them those that have not.
void report_shares(JsonLine& line, const Schedule& schedule, const Share* ended,
                   std::uint32_t threads) {
  std::size_t seat = 0;
  line.begin_list("shares");
  for (std::uint32_t thread = 0; thread < threads && thread < most_reported_shares; ++thread) {
    if (ended[thread].tickets != 0) {
      report_share(line, ended[thread]);
    } else if (seat < schedule.threads() && schedule.seat(seat).share.thread == thread) {
      report_share(line, schedule.seat(seat).share);
      ++seat;
    }
  }
  line.end_list();
}

void report_meters(JsonLine& line, const Schedule& schedule, const MeterChange* changes) {
  line.begin_list("meters");
  for (std::size_t i = 0; i < schedule.logged(); ++i) {
    line.begin_list();
    line.add(static_cast<std::int64_t>(changes[i].tick));
    line.add(changes[i].thread);
    line.add(changes[i].is_running);
    line.add_decimal(changes[i].meter);
    line.end_list();
  }
  line.end_list();
}

}  // namespace

void report_schedule(JsonLine& line, const Schedule* schedule, const Share* ended,
                     std::uint32_t threads, const MeterChange* changes) {
  if (schedule == nullptr) {
    line.add_null("ticks");
    line.add_null("shares");
    line.add_null("meters");
    return;
  }
  line.add("ticks", static_cast<std::int64_t>(schedule->ticks()));
  report_shares(line, *schedule, ended, threads);
  if (changes == nullptr) {
    line.add_null("meters");
  } else {
    report_meters(line, *schedule, changes);
  }
}

}  // namespace ts::replay
