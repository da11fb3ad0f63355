// What a replay executes, in memory: the operations of each process of a recorded program, in
// recorded order. Plan::load() makes it from a trace.
//
// Besides the order within each thread, a replay keeps these:
//
// - A *slot* holds the pointer of one live object, as in the trace. Operations on a slot that
//   several threads use are `shared`: each has a turn, runs when the slot's turn counter has that
//   value, and raises it by one. Only `waits` may have to wait: the operation before it in that slot
//   belongs to another thread.
// - An *epoch* is a range of operations. A thread enters it for its first operation there, as soon
//   as the first `after` epochs are done, that is, left by all threads with operations in them. A
//   fork is an epoch of its own that waits for all earlier ones, and that all later ones wait for:
//   so the child finds exactly the objects that it found when it was recorded.
// - `thread_begin` creates a thread when the first `turn` ends of threads have happened.
//
// The recorded order satisfies all of these, so they cannot form a cycle: whatever order a replay
// takes, some thread can always continue.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "replay/memory.h"
#include "trace/format.h"
#include "trace/reader.h"

namespace ts::plan {

inline constexpr std::uint32_t none = 0xffff'ffff;  // no image, no thread, no operation

// Of an operation, as of a trace's event. These are no calls, and a quantum does not count them:
//
//   thread_begin  its creator's. slot: the thread that begins; turn: how many ends must have happened
//   thread_end    the thread's last operation
//   fork          slot: the child's place in the table of images, or `none` if nothing of it is known
using trace::Kind;
inline constexpr std::size_t call_kinds = 6;
inline constexpr bool is_call(Kind kind) { return kind <= Kind::refused; }

inline constexpr std::uint64_t max_bytes = (std::uint64_t{1} << 40) - 1;  // of one object
inline constexpr std::uint32_t turn_mask = 0x7fff'ffff;  // turns count modulo 2^31; see waiting.h

// Flags of an operation.
inline constexpr std::uint16_t flag_shared = 1;  // has a turn
inline constexpr std::uint16_t flag_waits = 2;   // must look at the turn before it runs
inline constexpr std::uint16_t flag_cut = 4;     // of `refused`: more than max_bytes were asked for

struct Operation {
  std::uint64_t size : 40;  // of realloc the new one, of free 0
  Kind kind : 4;
  std::uint64_t log2_alignment : 6;  // of `aligned`
  std::uint64_t flags : 14;
  std::uint32_t slot;  // of the object; a refused request has none
  std::uint32_t turn;
  std::uint32_t thread;
  std::uint32_t next;  // of the same thread; none: it is the last
};
static_assert(sizeof(Operation) == 24);

struct Thread {
  std::uint32_t first;  // operation; none: it has none
  std::uint32_t end;    // the number of its end, counted in recorded order; none: it lives as long
                        // as the image
};

struct Epoch {
  std::uint32_t first;       // operation
  std::uint32_t threads;     // that enter it
  std::uint32_t after;       // how many epochs, from the first, must be done before any enters
  std::uint64_t last_event;  // the number of the first event after it, in the image
};

struct Totals {
  std::uint64_t calls[call_kinds];
  std::uint64_t bytes[call_kinds];  // requested; of realloc the new sizes, of free the freed ones

  void add(Kind kind, std::uint64_t size) {
    ++calls[static_cast<std::size_t>(kind)];
    bytes[static_cast<std::size_t>(kind)] += size;
  }
};

// One process. The first is the one that replay begins as; the others are its forked descendants.
struct Image {
  std::uint32_t number;  // in the trace
  std::uint32_t parent;  // place among the images; none: the first
  std::uint32_t threads;
  std::uint32_t epochs;
  std::uint32_t operations;
  std::uint32_t ends;  // of threads
  std::uint32_t epochs_at_most;
  Thread* thread_table;
  Operation* operation_table;
  Epoch* epoch_table;    // ended by one with first == operations
  std::uint64_t* times;  // of each operation, in ns since the image began; null: not asked for
  std::uint64_t slots;   // every slot is below this number
  std::uint64_t events;  // of the image in the trace
  Totals totals;
  std::uint64_t inherited_bytes;  // live when it began: its parent's at the fork
  std::uint64_t live_bytes;       // when it ended
  std::uint64_t live_objects;
  std::uint64_t peak_live_bytes;
  std::uint64_t peak_event;  // the first event after which live bytes were at their peak
  std::uint64_t peak_epoch;
  std::uint64_t left_out;  // events that are not replayed: of objects larger than max_bytes
};

using replay::Backing;
using replay::map_pages;
using replay::Mapped;
using replay::unmap_pages;
using trace::Event;
using trace::Problem;
using trace::Reader;

// The trace is read twice: to choose the program, and to write its operations. That takes 24 bytes
// for each call, and the tables of live objects.
struct LoadSettings {
  std::int64_t image = -1;      // number of the program; -1: the one with the most events
  std::uint64_t window = 1000;  // how far ahead of others, in events, a thread may run; 0: no limit
  bool with_times = false;
};

class Plan {
 public:
  Plan() = default;
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // False: `problem` says what is wrong with the trace or the settings.
  [[nodiscard]] bool load(const char* path, const LoadSettings& settings, trace::Problem& problem);

  std::uint32_t images() const { return image_count_; }
  const Image& image(std::size_t place) const { return images_[place]; }
  std::uint64_t window() const { return window_; }
  const char* program() const { return program_; }
  bool is_finished() const { return is_finished_; }  // whether the recorder finished
  std::uint64_t slots() const { return slots_; }     // every slot of every image is below

 private:
  friend class Loader;

  Image* images_ = nullptr;
  std::uint32_t image_count_ = 0;
  std::uint32_t places_ = 0;  // room
  std::uint64_t window_ = 0;
  std::uint64_t slots_ = 0;
  bool is_finished_ = false;
  char program_[trace::name_bytes] = {};
};

template <class T>
inline T* map_array(std::uint64_t count) {
  return static_cast<T*>(map_pages(count * sizeof(T), Backing::shared));
}

template <class T>
inline void unmap_array(T*& array, std::uint64_t count) {
  if (array != nullptr) unmap_pages(array, count * sizeof(T), Backing::shared);
  array = nullptr;
}

inline constexpr std::uint64_t unlimited_epoch_events = 1'000;
// A single thread never waits: its epochs are there only for samples.
inline constexpr std::uint64_t single_thread_epochs = 2'000;

inline std::uint64_t events_of_epoch(const Image& image, std::uint64_t window) {
  const std::uint64_t maximum = window != 0 ? window : unlimited_epoch_events;
  if (image.threads > 1) return maximum;
  return std::clamp<std::uint64_t>(image.events / single_thread_epochs, 1, maximum);
}

inline Operation operation_of(Kind kind, std::uint64_t size, std::uint32_t slot) {
  Operation operation = {};
  operation.size = size & max_bytes;
  operation.kind = kind;
  operation.slot = slot;
  return operation;
}

// What the first reading finds out about an image of the trace.
struct ScannedImage {
  std::uint64_t events;
  std::uint64_t events_of_all;  // with those of its forked descendants
  std::uint64_t forks;
  std::uint64_t slots;
  std::uint32_t threads;
  std::uint32_t parent;
  trace::Birth birth;
  char program[trace::name_bytes];
  Image* row;  // null: it is not in the plan
};

// The second reading: turns the image's events, in recorded order, into operations. Begins as zero
// bytes.
class ImageLoad : public ScannedImage {
 public:
  void begin(std::uint64_t window, const ImageLoad* parent_load) {
    window_ = window;
    epoch_events_ = events_of_epoch(*row, window);
    slots_ = map_array<SlotState>(slots);
    threads_ = map_array<ThreadState>(threads);
    for (std::uint32_t t = 0; t < threads; ++t) {
      row->thread_table[t] = {none, none};
      threads_[t].last = none;
    }
    if (parent_load == nullptr) return;
    // The forking thread is the child's first, and has used all that it inherits.
    for (std::uint64_t i = 0; i < std::min(parent_load->slots, slots); ++i) {
      slots_[i] = parent_load->slots_[i];
      slots_[i].thread = slots_[i].turn = 0;
      slots_[i].is_shared = 0;
    }
    const Image& parent_row = *parent_load->row;
    row->live_bytes = row->inherited_bytes = row->peak_live_bytes = parent_row.live_bytes;
    row->live_objects = parent_row.live_objects;
  }

  // Adds the next event. child: for a fork, the child's place in the plan, or `none`. Returns null,
  // or what is wrong.
  const char* see(const Event& event, std::uint32_t child) {
    separate_epochs(event.kind == Kind::fork);
    time_ns_ = event.time_ns;
    if (threads_[event.thread].has_ended) return "a thread acts after it ended";
    const char* wrong = nullptr;
    switch (event.kind) {
      case Kind::malloc:
      case Kind::calloc:
      case Kind::aligned:
        wrong = allocate(event);
        break;
      case Kind::realloc:
        wrong = resize(event);
        break;
      case Kind::free:
        wrong = release(event);
        break;
      case Kind::refused:
        refuse(event);
        break;
      case Kind::thread_begin:
        start(event);
        break;
      case Kind::fork:
        mark(event.thread, Kind::fork, child, 0);
        break;
      default:
        end(event.thread);
        break;
    }
    if (wrong == nullptr) ++seen_;
    return wrong;
  }

  std::uint64_t events_seen() const { return seen_; }

  void finish() {
    if (slots_ == nullptr) return;
    close_epoch();
    row->epoch_table[row->epochs].first = row->operations;
    for (std::uint32_t i = 0; i < row->operations; ++i) {
      Operation& operation = row->operation_table[i];
      if (!trace::has_object(operation.kind) || slots_[operation.slot].is_shared) continue;
      operation.flags = 0;
      operation.turn = 0;
    }
    unmap_array(slots_, slots);
    unmap_array(threads_, threads);
  }

 private:
  enum class Content : std::uint8_t { nothing, object, left_out };

  struct SlotState {
    std::uint64_t size : 40;
    Content content : 8;
    std::uint64_t was_used : 1;
    std::uint64_t is_shared : 1;
    std::uint32_t generation;
    std::uint32_t turn;
    std::uint32_t thread;  // of the last operation
  };

  struct ThreadState {
    std::uint32_t last;   // operation
    std::uint32_t epoch;  // 1 + that of the last operation
    bool has_ended;
  };

  const char* allocate(const Event& event) {
    SlotState& slot = slots_[event.slot];
    if (slot.content != Content::nothing || slot.generation != event.generation) {
      return "an object is allocated in a slot that is in use";
    }
    if (event.size > max_bytes) {
      ++row->left_out;
      slot.content = Content::left_out;
      return nullptr;
    }
    Operation operation = operation_of(event.kind, event.size, event.slot);
    operation.log2_alignment = event.kind == Kind::aligned ? event.log2_alignment & 0x3f : 0;
    order(operation, slot, event.thread);
    slot.content = Content::object;
    slot.size = event.size & max_bytes;
    ++row->live_objects;
    add_live(event.size);
    call(event.thread, operation, event.size);
    return nullptr;
  }

  const char* resize(const Event& event) {
    SlotState* slot = nullptr;
    if (const char* const wrong = find(event, slot)) return wrong;
    if (event.size > max_bytes || slot->content == Content::left_out) {
      ++row->left_out;
      return nullptr;
    }
    Operation operation = operation_of(Kind::realloc, event.size, event.slot);
    order(operation, *slot, event.thread);
    row->live_bytes -= slot->size;
    add_live(event.size);
    slot->size = event.size & max_bytes;
    call(event.thread, operation, event.size);
    return nullptr;
  }

  const char* release(const Event& event) {
    SlotState* slot = nullptr;
    if (const char* const wrong = find(event, slot)) return wrong;
    const bool is_left_out = slot->content == Content::left_out;
    slot->content = Content::nothing;
    ++slot->generation;
    if (is_left_out) {
      ++row->left_out;
      return nullptr;
    }
    Operation operation = operation_of(Kind::free, 0, event.slot);
    order(operation, *slot, event.thread);
    row->live_bytes -= slot->size;
    --row->live_objects;
    call(event.thread, operation, slot->size);
    return nullptr;
  }

  // The slot of an event's object.
  const char* find(const Event& event, SlotState*& slot) const {
    slot = &slots_[event.slot];
    const bool is_there = slot->content != Content::nothing;
    return is_there && slot->generation == event.generation ? nullptr : "an object is not live";
  }

  void refuse(const Event& event) {
    const bool is_cut = event.size > max_bytes;
    Operation operation = operation_of(Kind::refused, is_cut ? max_bytes : event.size, 0);
    operation.flags = is_cut ? flag_cut : 0;
    call(event.thread, operation, operation.size);
  }

  void start(const Event& event) {
    const std::uint32_t creator = threads_[event.slot].has_ended ? 0 : event.slot;
    mark(creator, Kind::thread_begin, event.thread, row->ends);
  }

  // The first thread is the process's own, and ends with it.
  void end(std::uint32_t thread) {
    if (thread == 0) return;
    mark(thread, Kind::thread_end, 0, 0);
    threads_[thread].has_ended = true;
    row->thread_table[thread].end = row->ends++;
  }

  // This many consecutive events form an epoch; forks have their own.
  void separate_epochs(bool is_fork) {
    if (seen_ < epoch_end_ && !is_fork && !is_fork_) return;
    close_epoch();
    epoch_end_ = (seen_ / epoch_events_ + 1) * epoch_events_;
    is_fork_ = is_fork;
  }

  void close_epoch() {
    if (!is_open_) return;
    Epoch& epoch = row->epoch_table[row->epochs];
    epoch.last_event = seen_;
    const std::uint32_t two_before = window_ != 0 && row->epochs > 0 ? row->epochs - 1 : 0;
    epoch.after = std::max(is_fork_ ? row->epochs : two_before, fence_);
    ++row->epochs;
    if (is_fork_) fence_ = row->epochs;
    is_open_ = false;
  }

  void call(std::uint32_t thread, const Operation& operation, std::uint64_t bytes) {
    row->totals.add(operation.kind, bytes);
    emit(thread, operation);
  }

  void mark(std::uint32_t thread, Kind kind, std::uint32_t slot, std::uint32_t turn) {
    Operation operation = operation_of(kind, 0, slot);
    operation.turn = turn;
    emit(thread, operation);
  }

  void emit(std::uint32_t thread, const Operation& operation) {
    const std::uint32_t index = row->operations++;
    Epoch& epoch = row->epoch_table[row->epochs];
    if (!is_open_) epoch.first = index;
    is_open_ = true;
    ThreadState& state = threads_[thread];
    if (state.epoch != row->epochs + 1) ++epoch.threads;
    state.epoch = row->epochs + 1;
    (state.last == none ? row->thread_table[thread].first : row->operation_table[state.last].next) =
        index;
    state.last = index;
    Operation& added = row->operation_table[index];
    added = operation;
    added.thread = thread;
    added.next = none;
    if (row->times != nullptr) row->times[index] = time_ns_;
  }

  // As if the slot were shared; finish() corrects that.
  static void order(Operation& operation, SlotState& slot, std::uint32_t thread) {
    const bool is_others = slot.was_used && slot.thread != thread;
    if (is_others) slot.is_shared = true;
    operation.flags = is_others ? flag_shared | flag_waits : flag_shared;
    operation.turn = slot.turn;
    slot.turn = (slot.turn + 1) & turn_mask;
    slot.thread = thread;
    slot.was_used = true;
  }

  void add_live(std::uint64_t bytes) {
    row->live_bytes += bytes;
    if (row->live_bytes <= row->peak_live_bytes) return;
    row->peak_live_bytes = row->live_bytes;
    row->peak_event = seen_;
    row->peak_epoch = row->epochs;
  }

  SlotState* slots_;
  ThreadState* threads_;
  std::uint64_t window_;
  std::uint64_t epoch_events_;
  std::uint64_t epoch_end_;
  bool is_fork_;         // this epoch belongs to a fork
  bool is_open_;         // it has an operation
  std::uint32_t fence_;  // epochs that all later ones wait for
  std::uint64_t seen_;
  std::uint64_t time_ns_;
};

class Loader {
 public:
  Loader(Plan& plan, const char* path, const LoadSettings& settings, Problem& problem)
      : plan_{plan},
        path_{path},
        settings_{settings},
        problem_{problem},
        images_{trace::max_images, Backing::shared} {}

  bool load() {
    if (!reader_.open(path_, problem_) || !scan() || !choose()) return false;
    const bool is_read = read();
    for (std::uint32_t i = 0; i < image_count_; ++i) images_[i].finish();
    return is_read;
  }

 private:
  bool scan() {
    Reader::ReadStatus found{};
    while ((found = reader_.next(problem_)) == Reader::ReadStatus::chunk) {
      const trace::ChunkHeader& chunk = reader_.header();
      ImageLoad& image = images_[chunk.image];
      if (chunk.type == trace::ChunkType::image) {
        const trace::ImageBegin& begin = reader_.image_begin();
        image.threads = 1;
        image.parent = begin.parent;
        image.birth = begin.birth;
        // Objects that it inherits are in its parent's slots.
        if (begin.birth == trace::Birth::fork) image.slots = images_[begin.parent].slots;
        std::memcpy(image.program, begin.program, sizeof image.program);
        image_count_ = chunk.image + 1;
      }
      if (chunk.type != trace::ChunkType::events) continue;
      image.events += chunk.count;
      for (const Event& event : reader_.events()) {
        if (event.kind == Kind::thread_begin) ++image.threads;
        if (event.kind == Kind::fork) ++image.forks;
        if (trace::has_object(event.kind)) {
          image.slots = std::max(image.slots, std::uint64_t{event.slot} + 1);
        }
      }
    }
    plan_.is_finished_ = reader_.is_finished();
    return found == Reader::ReadStatus::end;
  }

  // The program with the most events, and all that was forked from it.
  bool choose() {
    std::uint32_t chosen = none;
    for (std::uint32_t i = image_count_; i-- > 0;) {  // a child's number is above its parent's
      ImageLoad& image = images_[i];
      image.events_of_all += image.events;
      if (image.birth == trace::Birth::fork) {
        images_[image.parent].events_of_all += image.events_of_all;
      } else if (chosen == none || image.events_of_all >= images_[chosen].events_of_all) {
        chosen = i;
      }
    }
    if (settings_.image >= 0) {
      if (settings_.image >= image_count_) {
        return trace::refuse(problem_, "'%.200s' has no image %lld; the last image is %u.", path_,
                             static_cast<long long>(settings_.image), image_count_ - 1);
      }
      chosen = static_cast<std::uint32_t>(settings_.image);
      if (images_[chosen].birth == trace::Birth::fork) {
        return trace::refuse(problem_,
                             "image %u was forked, and starts with its parent's objects; replay "
                             "image %u, which forks it.",
                             chosen, images_[chosen].parent);
      }
    }
    if (chosen == none || images_[chosen].events_of_all == 0) {
      return trace::refuse(problem_,
                           "'%.200s' contains no events; record a program that allocates.", path_);
    }
    std::memcpy(plan_.program_, images_[chosen].program, sizeof plan_.program_);
    plan_.images_ = map_array<Image>(image_count_);
    plan_.places_ = image_count_;
    plan_.window_ = settings_.window;
    for (std::uint32_t i = chosen; i < image_count_; ++i) {
      const bool is_child =
          images_[i].birth == trace::Birth::fork && images_[images_[i].parent].row != nullptr;
      if (i != chosen && !is_child) continue;
      if (images_[i].events >= none) {
        return trace::refuse(problem_, "image %u of '%.200s' has too many events to replay.", i,
                             path_);
      }
      make_row(i, i == chosen ? none : place_of(images_[i].parent));
    }
    return true;
  }

  // In the plan; none: it is not there.
  std::uint32_t place_of(std::uint32_t number) const {
    const Image* const row = number < image_count_ ? images_[number].row : nullptr;
    return row != nullptr ? static_cast<std::uint32_t>(row - plan_.images_) : none;
  }

  // Room for the maximum; what is not used is never touched.
  void make_row(std::uint32_t number, std::uint32_t parent) {
    ImageLoad& image = images_[number];
    Image& row = plan_.images_[plan_.image_count_++];
    image.row = &row;
    row.number = number;
    row.parent = parent;
    row.threads = image.threads;
    row.slots = image.slots;
    plan_.slots_ = std::max(plan_.slots_, image.slots);
    row.events = image.events;
    const std::uint64_t max_epochs =
        row.events / events_of_epoch(row, settings_.window) + 2 * image.forks + 2;
    row.epochs_at_most = static_cast<std::uint32_t>(max_epochs);
    row.thread_table = map_array<Thread>(row.threads);
    row.operation_table = map_array<Operation>(row.events);
    row.epoch_table = map_array<Epoch>(row.epochs_at_most);
    if (settings_.with_times) row.times = map_array<std::uint64_t>(row.events);
  }

  bool read() {
    reader_.rewind();
    Reader::ReadStatus found{};
    while ((found = reader_.next(problem_)) == Reader::ReadStatus::chunk) {
      const trace::ChunkHeader& chunk = reader_.header();
      ImageLoad& image = images_[chunk.image];
      if (image.row == nullptr || chunk.type == trace::ChunkType::trace_end) continue;
      if (chunk.type == trace::ChunkType::image) {
        image.begin(settings_.window, image.row->parent != none ? &images_[image.parent] : nullptr);
      } else if (chunk.type == trace::ChunkType::image_end) {
        image.finish();
      } else if (!see(image)) {
        return false;
      }
    }
    return found == Reader::ReadStatus::end;
  }

  // The chunk's events.
  bool see(ImageLoad& load) {
    for (const Event& event : reader_.events()) {
      const std::uint32_t child = event.kind == Kind::fork ? place_of(event.slot) : none;
      if (const char* const wrong = load.see(event, child)) {
        return trace::refuse(problem_,
                             "'%.200s' is damaged: %s, in event %llu of image %u; record it "
                             "again with `tsmalloc record`.",
                             path_, wrong, static_cast<unsigned long long>(load.events_seen()),
                             reader_.header().image);
      }
    }
    return true;
  }

  Plan& plan_;
  const char* path_;
  const LoadSettings& settings_;
  Problem& problem_;
  Reader reader_;
  Mapped<ImageLoad> images_;
  std::uint32_t image_count_ = 0;
};

inline bool Plan::load(const char* path, const LoadSettings& settings, Problem& problem) {
  return Loader{*this, path, settings, problem}.load();
}

inline Plan::~Plan() {
  for (std::uint32_t i = 0; i < image_count_; ++i) {
    Image& row = images_[i];
    unmap_array(row.thread_table, row.threads);
    unmap_array(row.operation_table, row.events);
    unmap_array(row.epoch_table, row.epochs_at_most);
    unmap_array(row.times, row.events);
  }
  unmap_array(images_, places_);
}

}  // namespace ts::plan
