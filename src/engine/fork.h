// Around a fork: all locks are taken, and in the child the heaps of the threads that it lacks are
// abandoned, but for those that were in the middle of a change.
#pragma once

namespace ts::engine {

void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace ts::engine
