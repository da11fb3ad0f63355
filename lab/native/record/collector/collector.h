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

#include <sys/types.h>
#include <unistd.h>

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "record/collector/clock.h"
#include "record/collector/event_translator.h"
#include "record/collector/ring_file.h"
#include "record/collector/ticket_window.h"

namespace ts::record {

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
  std::uint64_t events = 0;
  std::uint64_t objects = 0;
  std::uint64_t frees = 0;
  std::uint32_t threads = 0;
  Anomalies anomalies;
  std::uint64_t lost_events = 0;  // for which the ring had no room
  std::uint64_t waits = 0;
  std::uint64_t wait_ns = 0;
};

// How long to wait for a ticket that was drawn but not published.
inline constexpr std::uint64_t gap_timeout_ns = 20'000'000;

class Collector {
 public:
  Collector(RingFile& file, Clock& clock, Sink& sink);
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // One round. Returns how many records were found.
  std::size_t collect();

  // A process has ended; the status is from waitpid.
  void note_end(pid_t pid, int wait_status);

  // Every process has ended.
  void conclude();

  // In the order in which they ended.
  const std::vector<ImageReport>& reports() const { return reports_; }

  // The program that a process is being recorded as, or null.
  const std::string* program_of(pid_t pid);

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

  void scan_for_images();
  void add_new_images();
  void add_image(ImagePlace& place);
  bool begin(Live& live, bool is_last);
  bool begin_executed(Live& live, bool is_last);

  bool begin_forked(Live& live, bool is_last);
  void begin_without_parent(Live& live, trace::Birth birth, std::uint32_t parent);
  std::uint32_t number_of(std::uint64_t id);
  void announce_fork(Live& parent, const RawEvent& raw);
  void await_fork_announcement(Live& child);

  std::size_t scan_chunks(std::uint32_t max_gap);
  std::size_t scan_chunk(Live& live, std::uint32_t chunk, std::uint32_t max_gap);
  void deliver(Live& live);
  void deliver_up_to(Live& live, std::uint64_t limit, bool passes_gaps);
  void deliver_rest(Live& live);
  void take(Live& live, const Record& record);
  void give_back(Live& live, std::uint32_t chunk);
  void assist_waiting_threads(std::size_t found);
  bool is_drained() const;

  void check_for_ended_processes();
  trace::End end_of(const Live& live);
  void finish(Live& live, trace::End end);
  void report(const Live& live, trace::End end);

  static void clear(ImagePlace& place);
  Live* find(std::uint64_t id);
  Live* find_process(pid_t pid);
  std::uint64_t now_ns() const { return clock_.to_ns(clock_.read()); }

  Ring& ring_;
  Clock& clock_;
  Sink& sink_;
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
