// The engine's heap map for instrumented builds (libc/heap_map.cpp), which draw it while the
// program runs.
#pragma once

#include "core/view.h"
#include "engine/engine.h"

namespace ts::engine {

constexpr bool map_walk_is_safe(const Engine*) noexcept { return true; }

inline bool walk_map(Engine&, MapVisitor visit, void* argument) noexcept {
  return walk_spans(visit, argument);
}

}  // namespace ts::engine
