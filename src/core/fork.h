// Takes all locks around a fork. In the child, the heaps of threads that it lacks are abandoned,
// unless they were in the middle of a change.
#pragma once

namespace ts::engine {

void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace ts::engine
