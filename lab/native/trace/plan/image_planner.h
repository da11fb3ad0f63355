// Plans one image: the second of two readings, in which the operations are written.
//
// Why it exists: which thread waits for which is decided here, in the recorded order, for plan.h's
// reasons.
// What it refuses to do: look ahead; what lies ahead is in the survey. A forked child is planned
// when its parent's fork is met, since that is where its objects are what it inherits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/plan/plan_file.h"
#include "trace/plan/planner.h"
#include "trace/plan/reserved_array.h"
#include "trace/plan/slot_pool.h"
#include "trace/plan/survey.h"

namespace ts::trace {

// The state that the plans of all images share.
struct PlanTree {
  const Reader& reader;
  const PlanSettings& settings;
  PlanFile& file;
  PlanSummary summary;
};

class ImagePlanner {
 public:
  // parent: null, or the one that has just met this image's fork. Of a trace's damage it makes what
  // it can: see PlanSummary.
  ImagePlanner(PlanTree& tree, const Image& image, std::uint32_t place, const ImagePlanner* parent);

  void run();

 private:
  struct Thread {
    Column<plan::Operation> operations;
    std::optional<Column<std::uint64_t>> times;
    plan::Thread row = {};
    bool has_started = false;
    bool has_ended = false;
    bool is_in_epoch = false;

    void finish() {
      row.operations = operations.size();
      operations.finish();
      if (times) times->finish();
    }
  };

  void lay_out();
  void inherit(const ImagePlanner& parent);
  void plan(const Event& event, std::uint64_t number);
  void allocate(const Event& event, plan::Kind kind);
  void resize(const Event& event);
  void release(const Event& event);
  void refuse(const Event& event);
  void begin_thread(const Event& event);
  void end_if_last(std::uint32_t thread, std::uint64_t number);
  void fork(const Event& event);
  void finish();

  void start(std::uint32_t creator, std::uint32_t thread);
  void make_sure_of(std::uint32_t thread);
  void close_epoch();
  void leave(std::uint32_t thread);
  void call(std::uint32_t thread, const plan::Operation& operation, std::uint64_t bytes);
  void mark(std::uint32_t thread, plan::Kind kind, std::uint32_t slot, std::uint32_t turn);
  void emit(std::uint32_t thread, const plan::Operation& operation);
  void order(plan::Operation& operation, bool is_shared, bool waits);
  void add_live(std::uint64_t bytes);
  std::uint32_t place_of_child(std::uint64_t number) const;
  bool is_known(std::uint64_t object) const {
    return object < slots_of_.size() && slots_of_[object] != 0;
  }

  PlanTree& tree_;
  const Image& trace_image_;
  std::uint32_t place_;  // in the plan
  plan::Image row_ = {};
  Survey survey_;
  EpochRanges ranges_;
  SlotPool slots_;
  ReservedArray<std::uint32_t> slots_of_;  // of each object: its slot, and 1; 0: not live
  std::vector<Thread> threads_;
  std::optional<Column<plan::Epoch>> epochs_;  // from lay_out on, as the next
  std::optional<Column<plan::Run>> runs_;
  std::uint32_t last_thread_ = plan::none;
  std::vector<std::uint32_t> inside_;  // threads that have entered this epoch
  std::uint32_t epoch_ = 0;
  std::uint32_t fence_ = 0;    // epochs that all later ones wait for
  bool is_open_ = false;       // a thread has entered it
  bool is_fork_ = false;       // it is a fork's
  std::uint64_t number_ = 0;   // of the event that is planned
  std::uint64_t time_ns_ = 0;  // its
  std::uint32_t ends_ = 0;
};

}  // namespace ts::trace
