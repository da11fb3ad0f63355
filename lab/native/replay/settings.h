// What a replay is asked to do, and the command line that says so.
//
// Everything that can be wrong in a request is found before anything is run.
#pragma once

#include <cstdint>

#include "common/system.h"
#include "replay/content.h"
#include "replay/load.h"
#include "replay/schedule/schedule.h"
#include "replay/schedule/tickets.h"

namespace ts::replay {

enum class Order : std::uint8_t {
  asap,       // threads run as they are
  paced,      // each call at its recorded time, or later
  recorded,   // one at a time, in the recorded order
  scheduled,  // one at a time; a schedule says which
};

inline constexpr bool runs_one_at_a_time(Order order) { return order >= Order::recorded; }

struct Settings {
  Order order = Order::asap;
  Discipline discipline = Discipline::round_robin;  // of `scheduled`
  std::uint64_t quantum = 100;                      // calls
  std::uint64_t seed = 1;
  Touch touch = Touch::page;
  bool verify = false;
  bool latency = false;
  std::uint64_t samples = 0;
  Nanoseconds settle_ns = -1;  // -1: do not
};

struct Request {
  const char* trace = nullptr;
  const char* schedule = "asap";  // as it was asked for
  const char* touch = "page";
  const char* addresses = nullptr;  // a file for them
  std::uint64_t frames = 0;         // moments at which to look which pages are resident
  Settings settings;
  plan::LoadSettings load;
  Tickets tickets;
};

// Does not return when the arguments are wrong, or ask for help.
void parse_request(int argument_count, char** arguments, Request& request);

}  // namespace ts::replay
