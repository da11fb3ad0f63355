// The settings of a replay.
#pragma once

#include <cstdint>

#include "common/system.h"
#include "replay/plan.h"
#include "replay/schedule.h"

namespace ts::replay {

// What is written into each block.
enum class Touch : std::uint8_t { none, first, page, all };

struct Settings {
  Order order = Order::asap;
  std::uint64_t quantum = 100;  // calls
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
  const char* addresses = nullptr;  // a file for them
  std::uint64_t frames = 0;         // how often to query which pages are resident
  Settings settings;
  plan::LoadSettings load;
};

}  // namespace ts::replay
