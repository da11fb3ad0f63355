// Around a fork, all locks are taken. In the child, heaps of threads that it lacks are abandoned,
// but for those in the middle of a change.
#pragma once

namespace ts::engine {

void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace ts::engine
