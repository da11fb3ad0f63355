// Small random plans, written by hand as `trace plan` would, for the tests of planned addresses.
//
// Why it exists: what is planned must hold for every plan, and these have everything in a few
// calls: threads that take turns, resizes, alignments, calls that were refused. What it refuses to
// do: hold epochs or turns, which do not matter where the recorded order is kept.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "replay/plan.h"

namespace ts::testing {

class PlanUnderTest {
 public:
  PlanUnderTest() {
    static int files = 0;
    path_ = ::testing::TempDir() + "/" + std::to_string(getpid()) + "-" + std::to_string(files++) +
            ".plan";
  }
  ~PlanUnderTest() { std::remove(path_.c_str()); }
  PlanUnderTest(const PlanUnderTest&) = delete;
  PlanUnderTest& operator=(const PlanUnderTest&) = delete;

  const std::string& path() const { return path_; }

  // The next operation in recorded order.
  void add(std::uint32_t thread, plan::Kind kind, std::uint32_t slot, std::uint64_t size,
           unsigned log2_alignment = 0) {
    if (thread >= threads_.size()) threads_.resize(thread + 1);
    plan::Operation operation{};
    operation.kind = static_cast<std::uint64_t>(kind) & 0xf;
    operation.slot = slot;
    operation.size = size & plan::most_bytes;
    operation.log2_alignment = log2_alignment & 63U;
    threads_[thread].push_back(operation);
    if (runs_.empty() || runs_.back().thread != thread) runs_.push_back({thread, 0});
    ++runs_.back().operations;
    slots_ = std::max<std::uint64_t>(slots_, slot + std::uint64_t{1});
  }

  void add_random(unsigned seed, std::size_t calls) {
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t end) {
      return std::uniform_int_distribution<std::uint32_t>{0, end - 1}(random);
    };
    const auto size = [&]() -> std::uint64_t {
      return below(6) == 0 ? below(20'000) : below(5) == 0 ? 0 : below(400);
    };
    std::vector<std::uint32_t> live;
    std::vector<std::uint32_t> free_slots;
    std::uint32_t slots = 0;
    for (std::size_t i = 0; i < calls; ++i) {
      const std::uint32_t thread = below(3);
      const std::uint32_t dice = below(20);
      if (dice == 0) {
        add(thread, plan::Kind::refused, 0, size());
      } else if (dice == 1) {
        add(thread, plan::Kind::enter, 0, 0);  // a marker: no call
      } else if (dice < 10 || live.empty()) {
        std::uint32_t slot = slots;
        if (free_slots.empty()) {
          ++slots;
        } else {
          slot = free_slots.back();
          free_slots.pop_back();
        }
        const auto kind = static_cast<plan::Kind>(below(3));
        add(thread, kind, slot, size(), kind == plan::Kind::aligned ? 3 + below(10) : 0);
        live.push_back(slot);
      } else {
        const std::uint32_t place = below(static_cast<std::uint32_t>(live.size()));
        if (dice < 14) {
          add(thread, plan::Kind::realloc, live[place], size());
        } else {
          add(thread, plan::Kind::free, live[place], 0);
          free_slots.push_back(live[place]);
          live.erase(live.begin() + place);
        }
      }
    }
  }

  void write() const {
    plan::Header header{};
    std::memcpy(header.magic, plan::magic, sizeof header.magic);
    header.version = plan::version;
    header.images = 1;
    header.image_bytes = sizeof(plan::Image);
    header.images_offset = plan::section_alignment;
    plan::Image image{};
    image.parent = plan::none;
    image.threads = static_cast<std::uint32_t>(threads_.size());
    image.runs = runs_.size();
    image.slots = slots_;
    image.threads_offset = 2 * plan::section_alignment;
    std::vector<plan::Thread> threads;
    std::vector<plan::Operation> operations;
    for (const auto& each : threads_) {
      threads.push_back({operations.size(), each.size(), each.size(), 0, plan::none});
      operations.insert(operations.end(), each.begin(), each.end());
    }
    image.operations = operations.size();
    image.operations_offset = 3 * plan::section_alignment;
    image.epochs_offset = up(image.operations_offset + operations.size() * sizeof operations[0]);
    image.runs_offset = image.epochs_offset;
    header.file_bytes = up(image.runs_offset + runs_.size() * sizeof(plan::Run));
    std::string file(header.file_bytes, '\0');
    const auto put = [&](std::uint64_t offset, const void* data, std::size_t bytes) {
      std::memcpy(file.data() + offset, data, bytes);
    };
    put(0, &header, sizeof header);
    put(header.images_offset, &image, sizeof image);
    put(image.threads_offset, threads.data(), threads.size() * sizeof threads[0]);
    put(image.operations_offset, operations.data(), operations.size() * sizeof operations[0]);
    put(image.runs_offset, runs_.data(), runs_.size() * sizeof runs_[0]);
    std::ofstream{path_, std::ios::binary} << file;
  }

 private:
  static std::uint64_t up(std::uint64_t offset) {
    return (offset + plan::section_alignment - 1) / plan::section_alignment *
           plan::section_alignment;
  }

  std::string path_;
  std::vector<std::vector<plan::Operation>> threads_;
  std::vector<plan::Run> runs_;
  std::uint64_t slots_ = 0;
};

}  // namespace ts::testing
