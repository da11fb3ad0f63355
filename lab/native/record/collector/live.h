// An image as the collector knows it, from its first sight to its end.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "record/collector/books.h"
#include "record/collector/collector.h"
#include "record/collector/ticket_window.h"
#include "record/ring.h"

namespace ts::record {

// How long a ticket is waited for that was drawn and is not published.
inline constexpr std::uint64_t gap_patience_ns = 20'000'000;

struct Collector::Live {
  Live() = default;
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;
  ~Live() {
    if (pid_descriptor >= 0) close(pid_descriptor);
  }

  ImagePlace* place = nullptr;
  std::uint64_t id = 0;
  int pid_descriptor = -1;      // readable when the process has ended; -1: the system has none
  bool has_ended = false;       // as seen at an earlier look
  std::uint64_t parent_id = 0;  // whom it replaced, by exec, or who started it; 0: not known
  std::uint64_t met_ns = 0;

  std::optional<Books> books;  // from its beginning in the trace on
  std::uint64_t begin_ns = 0;  // since the recording began
  ImageReport report;          // as far as it is known

  std::uint64_t time_ns = 0;  // of the latest event whose time is known

  TicketWindow window;
  std::uint64_t limit = 0;      // the highest ticket known before this round
  std::uint64_t gap = 0;        // the ticket that is missing; 0: none
  std::uint64_t gap_limit = 0;  // the limit when it was found missing
  std::uint64_t gap_since_ns = 0;
};

}  // namespace ts::record
