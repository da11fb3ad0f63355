// The settings of a replay.
#pragma once

#include <cstdint>

#include "common/system.h"
#include "replay/content.h"
#include "replay/load.h"
#include "replay/schedule.h"

namespace ts::replay {

enum class Order : std::uint8_t {
  asap,       // threads run freely
  paced,      // each call at its recorded time, or later
  recorded,   // one at a time, in the recorded order
  scheduled,  // one at a time; a schedule decides which
};

inline constexpr bool runs_one_at_a_time(Order order) { return order >= Order::recorded; }

struct Settings {
  Order order = Order::asap;
  Discipline discipline = Discipline::round_robin;  // for `scheduled`
  std::uint64_t quantum = 100;                      // calls
  std::uint64_t seed = 1;
  Tickets tickets;
  Touch touch = Touch::page;
  bool verify = false;
  bool latency = false;
  std::uint64_t samples = 0;
  Nanoseconds settle_ns = -1;  // -1: do not
};

struct Request {
  const char* trace = nullptr;
  const char* schedule = "asap";  // as given by the user
  const char* touch = "page";
  const char* addresses = nullptr;  // a file for them
  std::uint64_t frames = 0;         // how often to query which pages are resident
  Settings settings;
  plan::LoadSettings load;
};

}  // namespace ts::replay
