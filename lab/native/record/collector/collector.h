// Reads what the programs publish, and makes a trace of it.
//
// Records lie in the chunks of many threads in many images. Their writers may be dead, and the ring
// is small.
//
// The order, and why it is right. Each round scans all chunks once. Then, for each image, it takes
// in ticket order the records with tickets up to m, the highest one known *before* the round.
// Claim: whatever such a record depends on has been seen by then, so it is taken first, having the
// lower ticket (ring.h). Let record r have a ticket of at most m, and depend on q. Then q was
// published before r drew its ticket, and r drew its ticket no later than m was drawn. Tickets are
// drawn by additions to one counter that acquire and release, so what happened before r's draw
// happened before m's; m's record was published after its draw, by a release, and read by an
// acquire in an earlier round. So all of this round, which began later, sees q's publication. If a
// ticket up to m has not been seen by the end of the round, nothing up to m depends on it: a thread
// was interrupted between draw and publication, or will never publish. The round waits a little for
// it, only to keep ticket order. If it comes even later, it is taken when it comes, and by the same
// argument after all that it depends on.
//
// A child whose fork no record announces (made by the bare system call) inherits nothing: it is not
// known which of its parent's events came before.
#pragma once

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "clock.h"
#include "record/collector/event_translator.h"
#include "record/ring.h"

namespace ts::record {

// Puts the records of one image into ticket order.
//
// Threads write independently, and a record may be seen long before one with a lower ticket. A
// ticket whose thread was killed, or jumped out of the call, is never published. The caller decides
// up to which ticket records may be taken, and when to skip gaps (above); a record that turns
// up afterwards is taken at once.
class TicketWindow {
 public:
  // False: no program can have drawn such a ticket, so its memory was overwritten.
  bool add(const Record& record) {
    const std::uint64_t ticket = ticket_of(record);
    if (ticket < next_) {
      late_.push_back(&record);
      return true;
    }
    if (ticket - next_ >= max_ahead) return false;
    const auto slot = static_cast<std::size_t>(ticket - next_);
    if (slot >= slots_.size()) slots_.resize(slot + 1, nullptr);
    slots_[slot] = &record;
    return true;
  }

  std::uint64_t highest() const { return next_ + slots_.size() - 1; }  // that was added; 0: none
  std::uint64_t next() const { return next_; }  // all tickets below it have been taken

  // Calls take(record) for the records up to the ticket `limit`, in order; late ones first. Unless
  // gaps are to be skipped, it stops at the first one.
  template <class Take>
  void deliver(std::uint64_t limit, bool passes_gaps, Take take) {
    if (!late_.empty()) {
      std::sort(late_.begin(), late_.end(),
                [](const Record* a, const Record* b) { return ticket_of(*a) < ticket_of(*b); });
      for (const Record* record : late_) take(*record);
      late_.clear();
    }
    while (next_ <= limit && !slots_.empty()) {
      const Record* const record = slots_.front();
      if (record == nullptr && !passes_gaps) break;
      slots_.pop_front();
      ++next_;
      if (record != nullptr) take(*record);
    }
  }

 private:
  // More than the largest ring has records, and far more than any gap.
  static constexpr std::uint64_t max_ahead = 1 << 24;

  static std::uint64_t ticket_of(const Record& record) {
    return record.ticket.load(std::memory_order_relaxed);  // it had been acquired when it was found
  }

  std::deque<const Record*> slots_;  // of the tickets from next_ on; null: not seen yet
  std::uint64_t next_ = 1;
  std::vector<const Record*> late_;
};

// Facts about an image for the report that are not in the trace.
struct ImageReport {
  std::int32_t pid = 0;  // 0: none that means anything here
  std::string program;
  std::string allocator;
  trace::Birth birth = trace::Birth::root;
  std::uint32_t parent = trace::no_image;
  std::uint64_t null_frees = 0;

  // At its end.
  trace::End end = trace::End::unknown;
  std::uint32_t number = 0;
  Sums sums;
  std::uint64_t lost_events = 0;  // for which the ring had no room
  std::uint64_t waits = 0;
  std::uint64_t wait_ns = 0;
};

// How long to wait for a ticket that was drawn but not published.
inline constexpr std::uint64_t gap_timeout_ns = 20'000'000;
inline constexpr std::uint64_t publish_interval_ns = 1'000'000;
inline constexpr std::uint64_t ends_interval_ns = 20'000'000;

// How long a child waits for its parent's record of the fork, which the parent published earlier.
inline constexpr std::uint64_t announcement_timeout_ns = 1'000'000'000;

inline std::string text(const char (&name)[name_bytes]) {
  return {name, std::find(std::begin(name), std::end(name), '\0')};
}

inline bool has_process_ended(pid_t pid, int descriptor) {
  if (descriptor < 0) return kill(pid, 0) != 0 && errno == ESRCH;
  pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

class Collector {
 public:
  Collector(Ring& ring, Clock& clock, TraceSink& sink)
      : ring_{ring},
        clock_{clock},
        sink_{sink},
        by_place_(max_images, nullptr),
        found_ids_(max_images, 0),
        chunks_(ring.chunk_count) {}

  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // One round. Returns how many records were found.
  std::size_t collect() {
    ring_.rounds.fetch_add(1, std::memory_order_relaxed);
    if (const std::uint64_t ns = now_ns(); ns - published_ns_ >= publish_interval_ns) {
      ring_.now.store(clock_.read(), std::memory_order_relaxed);
      published_ns_ = ns;
    }
    gave_back_ = false;
    add_new_images();
    for (const auto& live : live_) live->limit = live->window.highest();
    const std::size_t found = scan_chunks(usual_gap);
    scan_for_images();
    for (const auto& live : live_) deliver(*live);
    assist_waiting_threads(found);
    if (now_ns() - checked_ends_ns_ >= ends_interval_ns) check_for_ended_processes();
    return found;
  }

  // A process has ended; the status is from waitpid.
  void note_end(pid_t pid, int wait_status) { wait_statuses_[pid] = wait_status; }

  // Every process has ended.
  void conclude() {
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

  // In the order in which they ended.
  const std::vector<ImageReport>& reports() const { return reports_; }

  // The program that a process is being recorded as, or null.
  const std::string* program_of(pid_t pid) {
    const Live* const live = find_process(pid);
    return live != nullptr ? &live->report.program : nullptr;
  }

  // Whether any of the process's images was recorded.
  bool is_known_process(pid_t pid) const { return known_processes_.contains(pid); }

 private:
  // Places that were taken and not yet published, one after the other: one for each signal handler
  // that interrupted another event's few instructions.
  static constexpr std::uint32_t usual_gap = 4;

  // An image as the collector knows it, from first sight to its end.
  struct Live {
    Live() = default;
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;
    ~Live() {
      if (pid_descriptor >= 0) close(pid_descriptor);
    }

    ImagePlace* place = nullptr;
    std::uint64_t id = 0;
    int pid_descriptor = -1;      // readable when the process has ended; -1: the system has none
    bool has_ended = false;       // as seen in an earlier round
    std::uint64_t parent_id = 0;  // the image that it replaced or was started by; 0: not known
    std::uint64_t discovered_ns = 0;

    std::optional<EventTranslator> translator;  // from its beginning in the trace on
    std::uint64_t begin_ns = 0;                 // since the recording began
    ImageReport report;                         // as far as it is known

    std::uint64_t time_ns = 0;  // of the latest event whose time is known

    TicketWindow window;
    std::uint64_t limit = 0;      // the highest ticket known before this round
    std::uint64_t gap = 0;        // the ticket that is missing; 0: none
    std::uint64_t gap_limit = 0;  // the limit when it was found missing
    std::uint64_t gap_since_ns = 0;
  };

  struct ChunkState {
    std::bitset<records_per_chunk> seen;
    std::uint32_t first_unseen = 0;
    std::uint32_t delivered = 0;
  };
  // A fork announced by the parent, until the child is met.
  struct Expected {
    EventTranslator translator;
    std::uint64_t begin_ns;
    std::uint32_t parent;
  };
  // The parent's id, and the fork's number.
  using ForkKey = std::pair<std::uint64_t, std::uint32_t>;

  // Only lists new images, so it can be called at any time.
  void scan_for_images() {
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

  void add_new_images() {
    scan_for_images();
    while (!fresh_.empty()) {  // meeting one may end another, and that searches for more
      ImagePlace* const place = fresh_.front();
      fresh_.erase(fresh_.begin());
      add_image(*place);
    }
  }

  // A program in a process that already had one has replaced it, by exec. A fork's process is new:
  // if its number is known, it belongs to an ended process.
  void add_image(ImagePlace& place) {
    auto live = std::make_unique<Live>();
    live->place = &place;
    live->id = place.id;
    live->report.pid =
        place.is_elsewhere != 0 ? 0 : place.claimed_by.load(std::memory_order_relaxed);
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
      live->pid_descriptor = static_cast<int>(syscall(SYS_pidfd_open, live->report.pid, 0));
      live->has_ended = live->pid_descriptor < 0 && errno == ESRCH;
    }
    by_place_[static_cast<std::size_t>(&place - ring_.images)] = live.get();
    live_.push_back(std::move(live));
  }

  // False: not yet. Never false when called for the last time.
  bool begin(Live& live, bool is_last) {
    if (live.translator.has_value()) return true;
    const bool is_fork = live.place->birth == ImageBirth::fork;
    const ForkKey key{live.parent_id, live.place->fork_number};
    if (is_fork && is_last && !expected_.contains(key)) await_fork_announcement(live);
    if (const auto found = expected_.find(key); is_fork && found != expected_.end()) {
      live.translator = std::move(found->second.translator);
      live.begin_ns = found->second.begin_ns;
      live.report.birth = trace::Birth::fork;
      live.report.parent = found->second.parent;
      expected_.erase(found);
      return true;
    }
    const Live* const parent = find(live.parent_id);
    const bool may_be_announced = is_fork && parent != nullptr && key.second != 0 &&
                                  now_ns() - live.discovered_ns < announcement_timeout_ns;
    if (may_be_announced && !is_last) return false;
    const bool has_begun = parent != nullptr && parent->translator.has_value();
    if (parent != nullptr && !has_begun && !is_last) return false;
    trace::Image image;  // with nothing inherited
    if (has_begun) {
      image.parent = parent->translator->number();
    } else if (const auto former = former_.find(live.parent_id); former != former_.end()) {
      image.parent = former->second;
    }
    image.birth = is_fork        ? trace::Birth::orphan
                  : live.id == 1 ? trace::Birth::root
                                 : trace::Birth::exec;
    image.begin_ns = live.begin_ns = clock_.to_ns(live.place->begin_time);
    image.program = live.report.program;
    image.allocator = live.report.allocator;
    live.report.birth = image.birth;
    live.report.parent = image.parent;
    live.translator.emplace(sink_, sink_.begin_image(image));
    return true;
  }

  void announce_fork(Live& parent, const RawEvent& raw) {
    const trace::Image child{.begin_ns = parent.begin_ns + raw.time_ns,
                             .program = parent.report.program,
                             .allocator = parent.report.allocator};
    expected_.emplace(ForkKey{parent.id, static_cast<std::uint32_t>(raw.record.address())},
                      Expected{.translator = parent.translator->fork(raw, child),
                               .begin_ns = child.begin_ns,
                               .parent = parent.translator->number()});
  }

  // A child that ends at once may be met before its parent's earlier records have been written. Two
  // rounds: what the first one finds may be written after the second (see above).
  void await_fork_announcement(Live& child) {
    Live* const parent = find(child.parent_id);
    if (parent == nullptr || child.place->fork_number == 0) return;
    scan_chunks(usual_gap);
    parent->limit = parent->window.highest();
    scan_chunks(usual_gap);
    if (begin(*parent, true)) deliver_up_to(*parent, parent->limit, true);
  }

  std::size_t scan_chunks(std::uint32_t max_gap) {
    std::size_t found = 0;
    for (std::uint32_t i = 0; i < chunks_.size(); ++i) {
      // relaxed: an owner that matters is seen, since its record's publication came after it
      const std::uint32_t owner = ring_.owners[i].load(std::memory_order_relaxed);
      if (owner == 0 || owner > max_images || by_place_[owner - 1] == nullptr) continue;
      found += scan_chunk(*by_place_[owner - 1], i, max_gap);
    }
    return found;
  }

  std::size_t scan_chunk(Live& live, std::uint32_t chunk, std::uint32_t max_gap) {
    ChunkState& state = chunks_[chunk];
    Chunk& content = ring_.chunks()[chunk];
    // acquire: pairs with the release of a thread that ends; all of its records will be seen
    const bool is_closed = content.head.closed.load(std::memory_order_acquire) != 0;
    std::size_t found = 0;
    std::uint32_t gap = 0;
    for (std::uint32_t i = state.first_unseen; i < records_per_chunk && gap <= max_gap; ++i) {
      if (state.seen[i]) continue;
      const Record& record = content.records[i];
      // acquire: pairs with the release in publish (shim.h)
      if (record.ticket.load(std::memory_order_acquire) == 0) {
        ++gap;
        continue;
      }
      ++found;
      state.seen[i] = true;
      if (!live.window.add(record)) ++state.delivered;
    }
    while (state.first_unseen < records_per_chunk && state.seen[state.first_unseen]) {
      ++state.first_unseen;
    }
    if (is_closed && found == 0 && state.delivered == state.seen.count()) give_back(live, chunk);
    return found;
  }

  // Records up to the limit of this round; gaps among them get some time to fill.
  void deliver(Live& live) {
    if (!begin(live, false)) return;
    deliver_up_to(live, live.limit, false);
    if (live.window.next() > live.limit) {
      live.gap = 0;
    } else if (live.gap != live.window.next()) {
      live.gap = live.window.next();
      live.gap_limit = live.limit;
      live.gap_since_ns = now_ns();
    } else if (now_ns() - live.gap_since_ns > gap_timeout_ns) {
      deliver_up_to(live, live.gap_limit, true);
    }
  }

  void deliver_up_to(Live& live, std::uint64_t limit, bool passes_gaps) {
    live.window.deliver(limit, passes_gaps, [&](const Record& record) { take(live, record); });
  }

  void take(Live& live, const Record& record) {
    const auto offset = reinterpret_cast<std::uintptr_t>(&record) -
                        reinterpret_cast<std::uintptr_t>(ring_.chunks());
    const auto chunk = static_cast<std::uint32_t>(offset / chunk_bytes);
    if (record.kind() != RawKind::resize && record.time != no_time) {
      const std::uint64_t time_ns = clock_.to_ns(record.time);
      live.time_ns = time_ns > live.begin_ns ? time_ns - live.begin_ns : 0;
    }
    const RawEvent raw{record, ring_.chunks()[chunk].head.thread.load(std::memory_order_relaxed),
                       live.time_ns};
    if (record.kind() == RawKind::fork) {
      announce_fork(live, raw);
    } else {
      live.translator->add(raw);
    }
    if (++chunks_[chunk].delivered == records_per_chunk) give_back(live, chunk);
  }

  void give_back(Live& live, std::uint32_t chunk) {
    Chunk& content = ring_.chunks()[chunk];
    live.report.null_frees += content.head.ignored.load(std::memory_order_relaxed);
    std::memset(static_cast<void*>(&content), 0, sizeof content);
    chunks_[chunk] = ChunkState{};
    // release: pairs with the acquire of its next owner, which sees the zeros
    ring_.owners[chunk].store(0, std::memory_order_release);
    if (chunk < ring_.first_free.load(std::memory_order_relaxed)) {
      ring_.first_free.store(chunk, std::memory_order_relaxed);
    }
    gave_back_ = true;
  }

  // Threads wait for chunks while we lag behind, which is intended. But if everything has been
  // read, and each chunk belongs to a thread that has not filled it, there are more threads than
  // chunks.
  void assist_waiting_threads(std::size_t found) {
    if (gave_back_) {
      ring_.is_exhausted.store(0, std::memory_order_relaxed);
      ring_.given_back.fetch_add(1, std::memory_order_seq_cst);
    }
    if (ring_.waiting.load(std::memory_order_seq_cst) == 0) return;
    if (!gave_back_) {
      const bool is_drained = std::ranges::all_of(
          live_, [](const auto& live) { return live->window.next() > live->window.highest(); });
      if (found > 0 || !is_drained) return;
      const auto is_free = [](const std::atomic<std::uint32_t>& owner) {
        return owner.load(std::memory_order_relaxed) == 0;
      };
      const bool has_free = std::any_of(ring_.owners, ring_.owners + chunks_.size(), is_free);
      if (!has_free) ring_.is_exhausted.store(1, std::memory_order_relaxed);
      ring_.given_back.fetch_add(1, std::memory_order_seq_cst);
    }
    syscall(SYS_futex, &ring_.given_back, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  // An end takes effect only in the second round: by then its parent, if that is us, has reaped it.
  void check_for_ended_processes() {
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

  trace::End end_of(const Live& live) {
    using trace::End;
    if (const auto status_entry = wait_statuses_.find(live.report.pid);
        status_entry != wait_statuses_.end()) {
      const int status = status_entry->second;
      wait_statuses_.erase(status_entry);
      return WIFSIGNALED(status) ? End::killed : End::exited;
    }
    const bool exits = live.place->exits.load(std::memory_order_relaxed) != 0;
    return exits ? End::exited : End::unknown;
  }

  // Nothing more is written for this image.
  void finish(Live& live, trace::End end) {
    scan_chunks(records_per_chunk);
    begin(live, true);
    deliver_up_to(live, live.window.highest(), true);  // no process is left to publish
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

  void report(const Live& live, trace::End end) {
    ImageReport& report = reports_.emplace_back(live.report);
    report.null_frees += live.place->ignored.load(std::memory_order_relaxed);
    report.end = end;
    report.number = live.translator->number();
    report.sums = live.translator->sums();
    report.lost_events = live.place->given_up.load(std::memory_order_relaxed);
    report.waits = live.place->waits.load(std::memory_order_relaxed);
    report.wait_ns = live.place->wait_ns.load(std::memory_order_relaxed);
  }

  // The next image may use the place.
  static void clear(ImagePlace& place) {
    place.is_ready.store(0, std::memory_order_relaxed);
    place.exits.store(0, std::memory_order_relaxed);
    place.next_fork.store(0, std::memory_order_relaxed);
    place.ignored.store(0, std::memory_order_relaxed);
    place.given_up.store(0, std::memory_order_relaxed);
    place.waits.store(0, std::memory_order_relaxed);
    place.wait_ns.store(0, std::memory_order_relaxed);
    // release: pairs with the acquire of its next owner, which sees the zeros
    place.claimed_by.store(0, std::memory_order_release);
  }

  Live* find(std::uint64_t id) {
    const auto found =
        std::find_if(live_.begin(), live_.end(), [id](const auto& live) { return live->id == id; });
    return found != live_.end() ? found->get() : nullptr;
  }

  Live* find_process(pid_t pid) {
    const auto found = std::find_if(live_.rbegin(), live_.rend(),
                                    [pid](const auto& live) { return live->report.pid == pid; });
    return found != live_.rend() ? found->get() : nullptr;
  }

  std::uint64_t now_ns() const { return clock_.to_ns(clock_.read()); }

  Ring& ring_;
  Clock& clock_;
  TraceSink& sink_;
  std::vector<std::unique_ptr<Live>> live_;  // in the order of their beginnings
  std::vector<Live*> by_place_;              // null: none that is known
  std::vector<std::uint64_t> found_ids_;     // by place: the last image found there
  std::uint64_t found_ = 0;                  // images, ever
  std::vector<ImagePlace*> fresh_;           // seen and not met yet, in the order of their ids
  std::vector<ChunkState> chunks_;
  std::map<ForkKey, Expected> expected_;
  std::map<std::uint64_t, std::uint32_t> former_;  // numbers of images that have ended, by id
  std::map<pid_t, int> wait_statuses_;
  std::set<pid_t> known_processes_;
  std::vector<ImageReport> reports_;
  bool gave_back_ = false;  // in this round
  std::uint64_t checked_ends_ns_ = 0;
  std::uint64_t published_ns_ = 0;  // when the ring's clock was set
};

}  // namespace ts::record
