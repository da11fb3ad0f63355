// Runs a script against a heap and its model, in step, and compares everything visible.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "property/trace.h"

namespace ts::testing {

// Executes the operations on the heap in the calling thread.
struct OneThread {
  template <class Job>
  void run(std::size_t, const Job& job) {
    job();
  }
};

// Hooks around an operation; by default they do nothing.
struct Hooks {
  std::function<void()> before = [] {};
  std::function<void()> heap_done = [] {};  // the heap's part is done, the model's is not
  std::function<void()> both_done = [] {};
};

template <class Crew = OneThread>
class Duel {
 public:
  static constexpr unsigned steps_per_comparison = 2500;

  // A model for each thread of the crew.
  Duel(const Cell& cell, AnyHeap& heap, const HeapConfig& config, oracle::World& world, Crew& crew,
       std::size_t threads = 1)
      : heap_{heap}, crew_{crew}, heaps_{rules_for(cell, config), world} {
    const bool heap_per_thread = cell.strategy == "nolock";
    for (std::size_t i = 0; i < threads; ++i)
      models_.emplace_back(cell, heaps_, heap_per_thread ? unsigned(i) + 1 : 0U);
  }

  // Runs `steps` operations, each by a random thread, then frees everything.
  void run(Script& script, unsigned steps, const Hooks& hooks = {}) {
    for (unsigned step = 0; step < steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      hooks.before();
      const std::size_t thread = models_.size() == 1 ? 0 : below(script.random(), models_.size());
      const Op op = script.next(live_.size());
      if (op.kind == Op::allocate) allocate(thread, op, hooks);
      if (op.kind == Op::release) release(thread, op, hooks);
      if (op.kind == Op::resize) resize(thread, op, hooks);
      hooks.both_done();
      if (step % steps_per_comparison == 0) compare();
      if (::testing::Test::HasFatalFailure()) return;
    }
    while (!live_.empty()) {
      release(live_.size() % models_.size(), {Op::release, 0, 16, live_.size() - 1}, hooks);
      hooks.both_done();
    }
    compare();
  }

  void compare() {
    expect_same_blocks(heap_, heaps_, [&](oracle::Address address) {
      return std::any_of(models_.begin(), models_.end(),
                         [&](const Model& model) { return model.holds(address); });
    });
  }

  Model& model_of(std::size_t thread) { return models_[thread]; }
  oracle::Heaps& heaps() { return heaps_; }
  unsigned refused() const { return refused_; }

 private:
  void allocate(std::size_t thread, const Op& op, const Hooks& hooks) {
    void* payload = nullptr;
    crew_.run(thread, [&] { payload = heap_.allocate(op.bytes, op.alignment); });
    hooks.heap_done();
    const auto expected = models_[thread].allocate(op.bytes, op.alignment);
    ASSERT_EQ(address_of(payload), expected.value_or(0))
        << "allocate(" << op.bytes << ", " << op.alignment << ") by thread " << thread;
    if (payload == nullptr) {
      ++refused_;
      return;
    }
    ASSERT_EQ(heap_.usable_size(payload) + tag_bytes, heaps_.block_bytes_at(*expected));
    ASSERT_GE(heap_.usable_size(payload), op.bytes);
    live_.push_back(payload);
    std::memset(payload, 0xa5, std::min<std::size_t>(op.bytes, 64));
  }

  void release(std::size_t thread, const Op& op, const Hooks& hooks) {
    void* const payload = live_[op.victim];
    live_[op.victim] = live_.back();
    live_.pop_back();
    crew_.run(thread, [&] { heap_.release(payload); });
    hooks.heap_done();
    models_[thread].release(address_of(payload));
  }

  void resize(std::size_t thread, const Op& op, const Hooks& hooks) {
    void* const payload = live_[op.victim];
    bool resized = false;
    crew_.run(thread, [&] { resized = heap_.resize(payload, op.bytes); });
    hooks.heap_done();
    ASSERT_EQ(resized, models_[thread].resize(address_of(payload), op.bytes))
        << "to " << op.bytes << " by thread " << thread;
    ASSERT_EQ(heap_.usable_size(payload) + tag_bytes, heaps_.block_bytes_at(address_of(payload)));
  }

  AnyHeap& heap_;
  Crew& crew_;
  oracle::Heaps heaps_;
  std::vector<Model> models_;
  std::vector<void*> live_;
  unsigned refused_ = 0;
};

}  // namespace ts::testing
