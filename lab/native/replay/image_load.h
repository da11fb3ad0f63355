// One process of a plan while it is loaded: from its events, in their recorded order, to operations
// and what they wait for. Done twice: the first time only counts, and finds the slots that more than
// one thread has to do with.
#pragma once

#include <cstdint>

#include "replay/plan.h"
#include "trace/format.h"

namespace ts::plan {

// Begins as zero bytes.
class ImageLoad {
 public:
  // row: with room for what the first pass has counted, if this is the second.
  void prepare(Image& row, std::uint64_t window, bool is_filling);

  // It begins now, as a fork of `parent`.
  void inherit(const ImageLoad& parent);

  // The next event. child: of a fork, its place in the plan, or `none`. Null, or what is wrong.
  const char* see(const trace::Event& event, std::uint32_t child);

  std::uint64_t events_seen() const { return seen_; }

  void finish();
  void release();

 private:
  enum class Content : std::uint8_t { nothing, object, left_out };

  struct SlotState {
    std::uint64_t size : 40;
    std::uint64_t content : 8;  // Content
    std::uint64_t was_used : 1;
    std::uint64_t is_shared : 1;  // found in the first pass, used in the second
    std::uint32_t generation;
    std::uint32_t turn;
    std::uint32_t thread;  // of the last operation
  };

  struct ThreadState {
    std::uint64_t emitted;
    bool has_started;
    bool has_ended;
    bool is_in_epoch;
  };

  const char* allocate(const trace::Event& event);
  const char* resize(const trace::Event& event);
  const char* release(const trace::Event& event);
  const char* find(const trace::Event& event, SlotState*& slot) const;
  void refuse(const trace::Event& event);
  void begin_thread(const trace::Event& event);
  void end_thread(std::uint32_t thread);
  void fork(const trace::Event& event, std::uint32_t child);

  bool begins_epoch(bool is_fork);
  void start(std::uint32_t creator, std::uint32_t thread);
  void make_sure_of(std::uint32_t thread);
  void close_epoch();
  void leave(std::uint32_t thread);
  void call(std::uint32_t thread, const Operation& operation, std::uint64_t bytes);
  void mark(std::uint32_t thread, Kind kind, std::uint32_t slot, std::uint32_t turn);
  void emit(std::uint32_t thread, const Operation& operation);
  void order(Operation& operation, SlotState& slot, std::uint32_t thread) const;
  void add_live(std::uint64_t bytes);

  Image* row_;
  SlotState* slots_;
  ThreadState* threads_;
  std::uint32_t* inside_;  // threads that have entered this epoch
  std::uint32_t inside_count_;
  bool is_filling_;
  std::uint64_t window_;
  std::uint64_t epoch_events_;
  std::uint64_t epoch_end_;
  bool was_fork_;
  bool is_fork_;  // this epoch is a fork's
  bool is_open_;  // a thread has entered it
  std::uint32_t epoch_;
  std::uint32_t fence_;  // epochs that all later ones wait for
  std::uint32_t ends_;
  std::uint32_t last_thread_;
  std::uint32_t run_operations_;
  std::uint64_t runs_;
  std::uint64_t seen_;
  std::uint64_t time_ns_;
};

}  // namespace ts::plan
