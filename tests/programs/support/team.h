// Threads that start together once all of them exist: creating a thread allocates, and that must
// not be part of what is tested or timed.
#pragma once

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace ts::test {

// Runs work(number) in `count` threads; returns the seconds from the common start until the last
// has finished.
template <class Work>
double run_team(std::size_t count, Work work) {
  using Clock = std::chrono::steady_clock;
  std::barrier start{static_cast<std::ptrdiff_t>(count + 1)};
  std::barrier finish{static_cast<std::ptrdiff_t>(count + 1)};
  std::vector<std::thread> team;
  team.reserve(count);
  for (std::uint32_t number = 0; number < count; ++number) {
    team.emplace_back([&, number] {
      start.arrive_and_wait();
      work(number);
      finish.arrive_and_wait();
    });
  }
  // The clock starts before the gate opens: afterwards a thread may run before we read it.
  const Clock::time_point began = Clock::now();
  start.arrive_and_wait();
  finish.arrive_and_wait();
  const std::chrono::duration<double> seconds = Clock::now() - began;
  for (std::thread& member : team) member.join();
  return seconds.count();
}

}  // namespace ts::test
