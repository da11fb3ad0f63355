// How images are found, met, begin in the trace, and end; see collector.h.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "record/collector/collector.h"

namespace ts::record {
namespace {

// How long a child waits for its parent's record of the fork, which the parent published earlier.
constexpr std::uint64_t announcement_timeout_ns = 1'000'000'000;

std::string text(const char (&name)[name_bytes]) {
  return {name, std::find(std::begin(name), std::end(name), '\0')};
}

int open_process(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool has_process_ended(pid_t pid, int descriptor) {
  if (descriptor < 0) return kill(pid, 0) != 0 && errno == ESRCH;
  pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

}  // namespace

Collector::Live* Collector::find(std::uint64_t id) {
  const auto found =
      std::find_if(live_.begin(), live_.end(), [id](const auto& live) { return live->id == id; });
  return found != live_.end() ? found->get() : nullptr;
}

Collector::Live* Collector::find_process(pid_t pid) {
  const auto found = std::find_if(live_.rbegin(), live_.rend(),
                                  [pid](const auto& live) { return live->report.pid == pid; });
  return found != live_.rend() ? found->get() : nullptr;
}

const std::string* Collector::program_of(pid_t pid) {
  const Live* const live = find_process(pid);
  return live != nullptr ? &live->report.program : nullptr;
}

// Only lists new images, so it can be called at any time.
void Collector::scan_for_images() {
  if (ring_.next_id.load(std::memory_order_relaxed) == found_) return;
  // Repeats whenever it found one: its parent may have been published in a place already passed,
  // and must not be met after it.
  for (std::uint64_t before = found_ + 1; before != found_;) {
    before = found_;
    for (std::size_t i = 0; i < max_images; ++i) {
      ImagePlace& place = ring_.images[i];
      // acquire: pairs with the image's release; the place has been filled in
      if (place.is_ready.load(std::memory_order_acquire) == 0) continue;
      if (place.id == found_ids_[i]) continue;
      found_ids_[i] = place.id;
      ++found_;
      fresh_.push_back(&place);
    }
  }
  std::sort(fresh_.begin(), fresh_.end(), [](auto* a, auto* b) { return a->id < b->id; });
}

void Collector::add_new_images() {
  scan_for_images();
  while (!fresh_.empty()) {  // meeting one may end another, and that searches for more
    ImagePlace* const place = fresh_.front();
    fresh_.erase(fresh_.begin());
    add_image(*place);
  }
}

// A program in a process that already had one has replaced it, by exec. A fork's process is new: if
// its number is known, it belongs to an ended process.
void Collector::add_image(ImagePlace& place) {
  auto live = std::make_unique<Live>();
  live->place = &place;
  live->id = place.id;
  live->report.pid = place.is_elsewhere != 0 ? 0 : place.claimed_by.load(std::memory_order_relaxed);
  live->report.program = text(place.program);
  live->report.allocator = text(place.allocator);
  live->discovered_ns = now_ns();
  live->parent_id = place.parent_id;
  if (live->report.pid != 0) {
    const Live* const starter = find_process(place.parent_pid);
    if (place.birth == ImageBirth::exec && starter != nullptr) live->parent_id = starter->id;
    if (Live* const before = find_process(live->report.pid)) {
      const bool is_replaced = place.birth == ImageBirth::exec && !before->has_ended;
      if (is_replaced) live->parent_id = before->id;
      finish(*before, is_replaced ? trace::End::exec : end_of(*before));
    }
    wait_statuses_.erase(live->report.pid);
    known_processes_.insert(live->report.pid);
    live->pid_descriptor = open_process(live->report.pid);
    live->has_ended = live->pid_descriptor < 0 && errno == ESRCH;
  }
  by_place_[static_cast<std::size_t>(&place - ring_.images)] = live.get();
  live_.push_back(std::move(live));
}

// False: not yet. Never false when called for the last time.
bool Collector::begin(Live& live, bool is_last) {
  if (live.translator.has_value()) return true;
  if (live.place->birth == ImageBirth::fork) return begin_forked(live, is_last);
  return begin_executed(live, is_last);
}

bool Collector::begin_executed(Live& live, bool is_last) {
  const Live* const parent = find(live.parent_id);
  const bool has_begun = parent != nullptr && parent->translator.has_value();
  if (parent != nullptr && !has_begun && !is_last) return false;
  begin_without_parent(live, live.id == 1 ? trace::Birth::root : trace::Birth::exec,
                       has_begun ? parent->translator->number() : number_of(live.parent_id));
  return true;
}

// For an ended image.
std::uint32_t Collector::number_of(std::uint64_t id) {
  const auto former = former_.find(id);
  return former != former_.end() ? former->second : trace::no_image;
}

// With nothing inherited.
void Collector::begin_without_parent(Live& live, trace::Birth birth, std::uint32_t parent) {
  trace::Image image;
  image.birth = live.report.birth = birth;
  image.parent = live.report.parent = parent;
  image.begin_ns = live.begin_ns = clock_.to_ns(live.place->begin_time);
  image.program = live.report.program;
  image.allocator = live.report.allocator;
  live.translator.emplace(sink_, sink_.begin_image(image));
}

bool Collector::begin_forked(Live& live, bool is_last) {
  const ForkKey key{live.parent_id, live.place->fork_number};
  if (is_last && !expected_.contains(key)) await_fork_announcement(live);
  if (const auto found = expected_.find(key); found != expected_.end()) {
    live.translator = std::move(found->second.translator);
    live.begin_ns = found->second.begin_ns;
    live.report.birth = trace::Birth::fork;
    live.report.parent = found->second.parent;
    expected_.erase(found);
    return true;
  }
  const Live* const parent = find(live.parent_id);
  const bool may_be_announced = parent != nullptr && key.second != 0 &&
                                now_ns() - live.discovered_ns < announcement_timeout_ns;
  if (may_be_announced && !is_last) return false;
  const bool has_begun = parent != nullptr && parent->translator.has_value();
  if (parent != nullptr && !has_begun && !is_last) return false;
  begin_without_parent(live, trace::Birth::orphan,
                       has_begun ? parent->translator->number() : number_of(live.parent_id));
  return true;
}

void Collector::announce_fork(Live& parent, const RawEvent& raw) {
  trace::Image child;
  child.program = parent.report.program;
  child.allocator = parent.report.allocator;
  child.begin_ns = parent.begin_ns + raw.time_ns;
  expected_.emplace(ForkKey{parent.id, static_cast<std::uint32_t>(raw.address)},
                    Expected{.translator = parent.translator->fork(raw, child),
                             .begin_ns = child.begin_ns,
                             .parent = parent.translator->number()});
}

// A child that ends at once may be met before its parent's earlier records have been written. Two
// rounds: what the first one finds may be written after the second (collector.h).
void Collector::await_fork_announcement(Live& child) {
  Live* const parent = find(child.parent_id);
  if (parent == nullptr || child.place->fork_number == 0) return;
  scan_chunks(usual_gap);
  parent->limit = parent->window.highest();
  scan_chunks(usual_gap);
  if (begin(*parent, true)) deliver_up_to(*parent, parent->limit, true);
}

void Collector::note_end(pid_t pid, int wait_status) { wait_statuses_[pid] = wait_status; }

// An end takes effect only in the second round: by then its parent, if that is us, has reaped it.
void Collector::check_for_ended_processes() {
  checked_ends_ns_ = now_ns();
  std::vector<Live*> ended;
  for (const auto& live : live_) {
    if (live->report.pid == 0) continue;
    if (live->has_ended) {
      ended.push_back(live.get());
    } else {
      live->has_ended = has_process_ended(live->report.pid, live->pid_descriptor);
    }
  }
  for (Live* const live : ended) finish(*live, end_of(*live));
}

trace::End Collector::end_of(const Live& live) {
  using trace::End;
  if (const auto status_entry = wait_statuses_.find(live.report.pid);
      status_entry != wait_statuses_.end()) {
    const int status = status_entry->second;
    wait_statuses_.erase(status_entry);
    return WIFSIGNALED(status) ? End::killed : End::exited;
  }
  const bool exits = live.place->leave.load(std::memory_order_relaxed) == ImageLeave::exits;
  return exits ? End::exited : End::unknown;
}

void Collector::report(const Live& live, trace::End end) {
  ImageReport& report = reports_.emplace_back(live.report);
  report.null_frees += live.place->ignored.load(std::memory_order_relaxed);
  report.end = end;
  report.number = live.translator->number();
  report.events = live.translator->events();
  report.objects = live.translator->objects();
  report.frees = live.translator->frees();
  report.threads = live.translator->threads();
  report.anomalies = live.translator->anomalies();
  report.lost_events = live.place->given_up.load(std::memory_order_relaxed);
  report.waits = live.place->waits.load(std::memory_order_relaxed);
  report.wait_ns = live.place->wait_ns.load(std::memory_order_relaxed);
}

// The next image may use the place.
void Collector::clear(ImagePlace& place) {
  place.is_ready.store(0, std::memory_order_relaxed);
  place.leave.store(ImageLeave::no, std::memory_order_relaxed);
  place.next_fork.store(0, std::memory_order_relaxed);
  place.ignored.store(0, std::memory_order_relaxed);
  place.given_up.store(0, std::memory_order_relaxed);
  place.waits.store(0, std::memory_order_relaxed);
  place.wait_ns.store(0, std::memory_order_relaxed);
  // release: pairs with the acquire of its next owner, which sees the zeros
  place.claimed_by.store(0, std::memory_order_release);
}

// Nothing more is written for this image.
void Collector::finish(Live& live, trace::End end) {
  scan_chunks(records_per_chunk);
  deliver_rest(live);
  ImagePlace& place = *live.place;
  for (std::uint32_t i = 0; i < chunks_.size(); ++i) {
    if (ring_.owners[i].load(std::memory_order_relaxed) == place.index + 1) give_back(live, i);
  }
  const std::uint64_t now = now_ns();
  live.translator->conclude(end, now > live.begin_ns ? now - live.begin_ns : 0);
  report(live, end);
  former_[live.id] = live.translator->number();
  by_place_[place.index] = nullptr;
  clear(place);
  std::erase_if(live_, [&live](const auto& each) { return each.get() == &live; });
}

void Collector::conclude() {
  add_new_images();
  while (!live_.empty()) {
    Live& oldest = *live_.front();
    finish(oldest, end_of(oldest));
  }
  for (auto& [key, expected] : expected_) {
    expected.translator.conclude(trace::End::unknown, 0);
  }
  expected_.clear();
}

}  // namespace ts::record
