// Finding, adding and removing; see tracees.h.
#include "syscalls/tracees.h"

namespace ts {

Tracee* Tracees::find(pid_t thread) {
  std::size_t place = home_of(thread);
  while (tracees_[place].thread != 0) {
    if (tracees_[place].thread == thread) return &tracees_[place];
    place = after(place);
  }
  return nullptr;
}

Tracee* Tracees::add(pid_t thread) {
  if (count_ == most) return nullptr;
  std::size_t place = home_of(thread);
  while (tracees_[place].thread != 0) place = after(place);
  ++count_;
  tracees_[place] = Tracee{.thread = thread};
  return &tracees_[place];
}

// What stands behind moves up, unless its home lies behind the hole.
void Tracees::remove(pid_t thread) {
  Tracee* const found = find(thread);
  if (found == nullptr) return;
  --count_;
  auto hole = static_cast<std::size_t>(found - tracees_);
  for (std::size_t place = after(hole); tracees_[place].thread != 0; place = after(place)) {
    const std::size_t home = home_of(tracees_[place].thread);
    const std::size_t from_home = (place + places - home) % places;
    const std::size_t from_hole = (place + places - hole) % places;
    if (from_home < from_hole) continue;
    tracees_[hole] = tracees_[place];
    hole = place;
  }
  tracees_[hole] = Tracee{};
}

}  // namespace ts
