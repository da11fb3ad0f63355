// Makes a plan from a trace: what each thread does, and what it waits for.
//
// The trace is read twice: to choose the program, and to write its operations. That takes 24 bytes
// for each call, and the tables of live objects.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "replay/memory.h"
#include "replay/plan.h"
#include "trace/format.h"
#include "trace/reader.h"

namespace ts::plan {

using replay::Backing;
using replay::map_pages;
using replay::Mapped;
using replay::unmap_pages;
using trace::Event;
using trace::Problem;
using trace::Reader;

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

// One process while it is loaded: turns its events, in recorded order, into operations. Begins as
// zero bytes.
class ImageLoad {
 public:
  void begin(Image& row, std::uint64_t window, const ImageLoad* parent) {
    row_ = &row;
    window_ = window;
    epoch_events_ = events_of_epoch(row, window);
    slots_ = map_array<SlotState>(row.slots);
    threads_ = map_array<ThreadState>(row.threads);
    for (std::uint32_t t = 0; t < row.threads; ++t) {
      row.thread_table[t] = {none, none};
      threads_[t].last = none;
    }
    if (parent == nullptr) return;
    // The forking thread is the child's first, and has used all that it inherits.
    const std::uint64_t slots = std::min(parent->row_->slots, row.slots);
    for (std::uint64_t i = 0; i < slots; ++i) {
      slots_[i] = parent->slots_[i];
      slots_[i].thread = slots_[i].turn = 0;
      slots_[i].is_shared = 0;
    }
    row.live_bytes = row.inherited_bytes = row.peak_live_bytes = parent->row_->live_bytes;
    row.live_objects = parent->row_->live_objects;
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
    row_->epoch_table[row_->epochs].first = row_->operations;
    for (std::uint32_t i = 0; i < row_->operations; ++i) {
      Operation& operation = row_->operation_table[i];
      if (!trace::has_object(operation.kind) || slots_[operation.slot].is_shared) continue;
      operation.flags = 0;
      operation.turn = 0;
    }
    unmap_array(slots_, row_->slots);
    unmap_array(threads_, row_->threads);
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
      ++row_->left_out;
      slot.content = Content::left_out;
      return nullptr;
    }
    Operation operation = operation_of(event.kind, event.size, event.slot);
    operation.log2_alignment = event.kind == Kind::aligned ? event.log2_alignment & 0x3f : 0;
    order(operation, slot, event.thread);
    slot.content = Content::object;
    slot.size = event.size & max_bytes;
    ++row_->live_objects;
    add_live(event.size);
    call(event.thread, operation, event.size);
    return nullptr;
  }

  const char* resize(const Event& event) {
    SlotState* slot = nullptr;
    if (const char* const wrong = find(event, slot)) return wrong;
    if (event.size > max_bytes || slot->content == Content::left_out) {
      ++row_->left_out;
      return nullptr;
    }
    Operation operation = operation_of(Kind::realloc, event.size, event.slot);
    order(operation, *slot, event.thread);
    row_->live_bytes -= slot->size;
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
      ++row_->left_out;
      return nullptr;
    }
    Operation operation = operation_of(Kind::free, 0, event.slot);
    order(operation, *slot, event.thread);
    row_->live_bytes -= slot->size;
    --row_->live_objects;
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
    mark(creator, Kind::thread_begin, event.thread, row_->ends);
  }

  // The first thread is the process's own, and ends with it.
  void end(std::uint32_t thread) {
    if (thread == 0) return;
    mark(thread, Kind::thread_end, 0, 0);
    threads_[thread].has_ended = true;
    row_->thread_table[thread].end = row_->ends++;
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
    Epoch& row = row_->epoch_table[row_->epochs];
    row.last_event = seen_;
    const std::uint32_t two_before = window_ != 0 && row_->epochs > 0 ? row_->epochs - 1 : 0;
    row.after = std::max(is_fork_ ? row_->epochs : two_before, fence_);
    ++row_->epochs;
    if (is_fork_) fence_ = row_->epochs;
    is_open_ = false;
  }

  void call(std::uint32_t thread, const Operation& operation, std::uint64_t bytes) {
    row_->totals.add(operation.kind, bytes);
    emit(thread, operation);
  }

  void mark(std::uint32_t thread, Kind kind, std::uint32_t slot, std::uint32_t turn) {
    Operation operation = operation_of(kind, 0, slot);
    operation.turn = turn;
    emit(thread, operation);
  }

  void emit(std::uint32_t thread, const Operation& operation) {
    const std::uint32_t index = row_->operations++;
    Epoch& epoch = row_->epoch_table[row_->epochs];
    if (!is_open_) epoch.first = index;
    is_open_ = true;
    ThreadState& state = threads_[thread];
    if (state.epoch != row_->epochs + 1) ++epoch.threads;
    state.epoch = row_->epochs + 1;
    (state.last == none ? row_->thread_table[thread].first
                        : row_->operation_table[state.last].next) = index;
    state.last = index;
    Operation& row = row_->operation_table[index];
    row = operation;
    row.thread = thread;
    row.next = none;
    if (row_->times != nullptr) row_->times[index] = time_ns_;
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
    row_->live_bytes += bytes;
    if (row_->live_bytes <= row_->peak_live_bytes) return;
    row_->peak_live_bytes = row_->live_bytes;
    row_->peak_event = seen_;
    row_->peak_epoch = row_->epochs;
  }

  Image* row_;
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
    Mapped<ImageLoad> loads{plan_.image_count_, Backing::shared};
    const bool is_read = read(loads);
    for (ImageLoad& each : loads) each.finish();
    return is_read;
  }

 private:
  // An image of the trace, after the first reading.
  struct Scanned {
    std::uint64_t events;
    std::uint64_t events_of_all;  // with those of its forked descendants
    std::uint64_t forks;
    std::uint64_t slots;
    std::uint32_t threads;
    std::uint32_t parent;
    std::uint32_t place;  // in the plan, and 1; 0: it has none
    trace::Birth birth;
    char program[trace::name_bytes];
  };

  bool scan() {
    Reader::ReadStatus found{};
    while ((found = reader_.next(problem_)) == Reader::ReadStatus::chunk) {
      const trace::ChunkHeader& chunk = reader_.header();
      Scanned& image = images_[chunk.image];
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
      Scanned& image = images_[i];
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
    std::uint32_t places = 0;
    for (std::uint32_t i = chosen; i < image_count_; ++i) {
      const bool is_child =
          images_[i].birth == trace::Birth::fork && images_[images_[i].parent].place != 0;
      if (i == chosen || is_child) images_[i].place = ++places;
      if (images_[i].place != 0 && images_[i].events >= none) {
        return trace::refuse(problem_, "image %u of '%.200s' has too many events to replay.", i,
                             path_);
      }
    }
    plan_.image_count_ = places;
    plan_.images_ = map_array<Image>(places);
    plan_.window_ = settings_.window;
    for (std::uint32_t i = chosen; i < image_count_; ++i) {
      if (images_[i].place != 0) make_tables(i, i == chosen);
    }
    return true;
  }

  // Room for the maximum; what is not used is never touched.
  void make_tables(std::uint32_t number, bool is_first) const {
    const Scanned& image = images_[number];
    Image& row = plan_.images_[image.place - 1];
    row.number = number;
    row.parent = is_first ? none : images_[image.parent].place - 1;
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

  bool read(Mapped<ImageLoad>& loads) {
    reader_.rewind();
    Reader::ReadStatus found{};
    while ((found = reader_.next(problem_)) == Reader::ReadStatus::chunk) {
      const trace::ChunkHeader& chunk = reader_.header();
      const Scanned& image = images_[chunk.image];
      if (image.place == 0 || chunk.type == trace::ChunkType::trace_end) continue;
      Image& row = plan_.images_[image.place - 1];
      ImageLoad& load = loads[image.place - 1];
      if (chunk.type == trace::ChunkType::image) {
        load.begin(row, settings_.window, row.parent != none ? &loads[row.parent] : nullptr);
      } else if (chunk.type == trace::ChunkType::image_end) {
        load.finish();
      } else if (!see(load)) {
        return false;
      }
    }
    return found == Reader::ReadStatus::end;
  }

  // The chunk's events.
  bool see(ImageLoad& load) {
    for (const Event& event : reader_.events()) {
      const bool is_known =
          event.kind == Kind::fork && event.slot < image_count_ && images_[event.slot].place != 0;
      const std::uint32_t child = is_known ? images_[event.slot].place - 1 : none;
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
  Mapped<Scanned> images_;
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
  unmap_array(images_, image_count_);
}

}  // namespace ts::plan
