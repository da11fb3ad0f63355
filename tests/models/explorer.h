// Explores every state that a model of a protocol between threads can reach, whichever thread takes
// the next step. A model is a class with
//
//   struct State                         all that the threads share or keep, in bytes; equal if ==
//   static constexpr unsigned threads
//   State first() const
//   bool step(State&, unsigned thread)   false, and nothing changed, if the thread cannot continue
//   void end(const State&)               no thread can continue: checks that all are done and right
//   std::string wrong                    what went wrong, if anything did
//
// A step is one access to memory that other threads may access at the same time, with everything
// that the thread does on its own until the next one. What it does under a lock is one step if
// nothing that the lock guards is accessed without it. No model of this kind can show reorderings
// of a thread's own accesses: comments at the atomics argue those, and the stress test runs under
// ThreadSanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ts::testing {

template <class Model>
class Explorer {
 public:
  explicit Explorer(Model model) : model_{std::move(model)} {}

  // The fault in some interleaving, and in which; empty if all are sound.
  std::string run() {
    std::vector<const Reached*> open{reach(model_.first(), nullptr, 0)};
    while (!open.empty()) {
      const Reached* const from = open.back();
      open.pop_back();
      bool moved = false;
      for (unsigned thread = 0; thread < Model::threads; ++thread) {
        State next = from->first;
        if (!model_.step(next, thread)) continue;
        moved = true;
        if (!model_.wrong.empty()) return model_.wrong + path_to(from) + std::to_string(thread);
        if (const Reached* const fresh = reach(next, from, thread)) open.push_back(fresh);
      }
      if (!moved) model_.end(from->first);
      if (!model_.wrong.empty()) return model_.wrong + path_to(from) + "and no more";
    }
    return {};
  }
  std::size_t states() const { return seen_.size(); }

 private:
  using State = typename Model::State;
  static_assert(std::has_unique_object_representations_v<State>,
                "a state is compared by its bytes");

  struct Hash {
    std::size_t operator()(const State& state) const {
      return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&state), sizeof(State)});
    }
  };
  // How a state was reached: from which, by whose step.
  struct Origin {
    const std::pair<const State, Origin>* from;
    unsigned thread;
  };
  using Reached = std::pair<const State, Origin>;

  // Null if the state was reached before.
  const Reached* reach(const State& state, const Reached* from, unsigned thread) {
    const auto [at, is_new] = seen_.try_emplace(state, Origin{from, thread});
    return is_new ? &*at : nullptr;
  }

  static std::string path_to(const Reached* state) {
    std::vector<std::string> threads;
    for (; state->second.from != nullptr; state = state->second.from)
      threads.push_back(std::to_string(state->second.thread) + " ");
    std::string path = "; steps of threads: ";
    for (auto at = threads.rbegin(); at != threads.rend(); ++at) path += *at;
    return path;
  }

  Model model_;
  std::unordered_map<State, Origin, Hash> seen_;
};

}  // namespace ts::testing
