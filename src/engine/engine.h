// The engine as libc/ uses it: the core with all features.
#pragma once

#include "core/core_heap.h"
#include "engine/follow_options.h"
#include "features/arenas/arenas.h"
#include "features/arenas/scopes.h"
#include "features/background/background_thread.h"
#include "features/limits/limits.h"
#include "features/profile/profiling.h"

namespace ts::engine {

class Engine : public CoreHeap {
 public:
  // ts_housekeep(), see background_thread.h.
  int housekeep() noexcept { return engine::housekeep(); }
  // To be called when an option has changed, without a lock.
  void follow_options() noexcept { engine::follow_options(); }
  void set_event_handler(LimitHandler* handler) noexcept { set_limit_handler(handler); }
  // See profiling.h.
  int start_profile(std::size_t interval) noexcept { return engine::start_profile(interval); }
  void stop_profile() noexcept { engine::stop_profile(); }
  int write_profile(int descriptor, bool is_peak) noexcept {
    return engine::write_profile(descriptor, is_peak ? ProfileKind::peak : ProfileKind::now);
  }
  // See arenas.h.
  ArenaHandle create_arena() noexcept { return engine::create_arena(); }
  int reset_arena(ArenaHandle arena) noexcept { return engine::reset_arena(arena); }
  int destroy_arena(ArenaHandle arena) noexcept { return engine::destroy_arena(arena); }
  int measure_arena(ArenaHandle arena, auto note) noexcept {
    ArenaUsage usage;
    const int error = engine::measure_arena(arena, usage);
    if (error == 0) note(usage);
    return error;
  }
  int enter_scope(ArenaHandle arena) noexcept { return engine::enter_scope(arena); }
  int leave_scope() noexcept { return engine::leave_scope(); }
  void begin_process(const char* version) noexcept {
    CoreHeap::begin_process(version);
    init_background_work();
    follow_limit_options();
    begin_profile(version, []() noexcept -> std::uint64_t {
      const HeapMeasures measures = measure();
      return measures.segment_bytes - measures.free_bytes - measures.waiting_bytes;
    });
  }
};

}  // namespace ts::engine
