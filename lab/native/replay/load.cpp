// See load.h.
#include "replay/load.h"

#include <algorithm>
#include <cstring>

#include "replay/image_load.h"

namespace ts::plan {

using replay::Backing;
using replay::map_pages;
using replay::unmap_pages;
using trace::Problem;
using trace::Reader;

namespace {

template <class T>
T* map_array(std::uint64_t count) {
  return static_cast<T*>(map_pages(count * sizeof(T), Backing::shared));
}

template <class T>
void unmap_array(T* array, std::uint64_t count) {
  if (array != nullptr) unmap_pages(array, count * sizeof(T), Backing::shared);
}

}  // namespace

class Loader {
 public:
  Loader(Plan& plan, const char* path, const LoadSettings& settings, Problem& problem)
      : plan_{plan},
        path_{path},
        settings_{settings},
        problem_{problem},
        images_{trace::most_images, Backing::shared} {}

  bool load() {
    if (!reader_.open(path_, problem_) || !scan() || !choose()) return false;
    replay::Mapped<ImageLoad> loads{plan_.image_count_, Backing::shared};
    bool is_read = true;
    for (const bool is_filling : {false, true}) {
      for (std::uint32_t place = 0; place < loads.size(); ++place)
        prepare(loads, place, is_filling);
      is_read = is_read && read(loads);
      if (!is_read) break;
      for (std::uint32_t place = 0; place < loads.size(); ++place) loads[place].finish();
    }
    for (ImageLoad& each : loads) each.release();
    return is_read;
  }

 private:
  // An image of the trace, after the first reading.
  struct Scanned {
    std::uint64_t events;
    std::uint64_t events_of_all;  // with those of its forked descendants
    std::uint64_t slots;
    std::uint32_t threads;
    std::uint32_t parent;
    std::uint32_t place;  // in the plan, and 1; 0: it has none
    trace::Birth birth;
    char program[trace::name_bytes];
  };

  bool scan() {
    Reader::Found found{};
    while ((found = reader_.next(problem_)) == Reader::Found::chunk) {
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
      for (const trace::Event& event : reader_.events()) {
        if (event.kind == trace::Kind::thread_begin) ++image.threads;
        if (trace::has_object(event.kind)) {
          image.slots = std::max(image.slots, std::uint64_t{event.slot} + 1);
        }
      }
    }
    plan_.is_finished_ = reader_.is_finished();
    return found == Reader::Found::end;
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
        return trace::refuse(problem_, "'%.200s' has no image %lld; the last is %u.", path_,
                             static_cast<long long>(settings_.image), image_count_ - 1);
      }
      chosen = static_cast<std::uint32_t>(settings_.image);
      if (images_[chosen].birth == trace::Birth::fork) {
        return trace::refuse(problem_,
                             "image %u was forked and begins with its parent's objects; replay "
                             "image %u, which forks it.",
                             chosen, images_[chosen].parent);
      }
    }
    if (chosen == none || images_[chosen].events_of_all == 0) {
      return trace::refuse(problem_, "'%.200s' has no event; record a program that allocates.",
                           path_);
    }
    std::memcpy(plan_.program_, images_[chosen].program, sizeof plan_.program_);
    std::uint32_t places = 0;
    for (std::uint32_t i = chosen; i < image_count_; ++i) {
      const bool is_child =
          images_[i].birth == trace::Birth::fork && images_[images_[i].parent].place != 0;
      if (i == chosen || is_child) images_[i].place = ++places;
    }
    plan_.image_count_ = places;
    plan_.images_ = map_array<Image>(places);
    plan_.window_ = settings_.window;
    for (std::uint32_t i = chosen; i < image_count_; ++i) {
      if (images_[i].place == 0) continue;
      Image& row = plan_.images_[images_[i].place - 1];
      row.number = i;
      row.parent = i == chosen ? none : images_[images_[i].parent].place - 1;
      row.threads = images_[i].threads;
      row.slots = images_[i].slots;
      row.events = images_[i].events;
      row.thread_table = map_array<Thread>(row.threads);
    }
    return true;
  }

  void prepare(replay::Mapped<ImageLoad>& loads, std::uint32_t place, bool is_filling) {
    Image& row = plan_.images_[place];
    if (is_filling) {  // the first pass has counted
      row.operation_table = map_array<Operation>(row.operations);
      row.epoch_table = map_array<Epoch>(row.epochs);
      row.run_table = map_array<Run>(row.runs);
      if (settings_.with_times) row.times = map_array<std::uint64_t>(row.operations);
    }
    loads[place].prepare(row, settings_.window, is_filling);
  }

  bool read(replay::Mapped<ImageLoad>& loads) {
    reader_.rewind();
    Reader::Found found{};
    while ((found = reader_.next(problem_)) == Reader::Found::chunk) {
      const trace::ChunkHeader& chunk = reader_.header();
      const Scanned& image = images_[chunk.image];
      if (image.place == 0 || chunk.type == trace::ChunkType::trace_end) continue;
      ImageLoad& load = loads[image.place - 1];
      if (chunk.type == trace::ChunkType::image && image.place > 1) {
        load.inherit(loads[images_[image.parent].place - 1]);
      }
      if (chunk.type != trace::ChunkType::events) continue;
      for (const trace::Event& event : reader_.events()) {
        const bool is_fork = event.kind == trace::Kind::fork;
        const std::uint32_t child =
            is_fork && event.slot < image_count_ && images_[event.slot].place != 0
                ? images_[event.slot].place - 1
                : none;
        if (const char* const wrong = load.see(event, child)) {
          return trace::refuse(problem_,
                               "'%.200s' is damaged: %s, in event %llu of image %u; record it "
                               "again with `tsmalloc record`.",
                               path_, wrong, static_cast<unsigned long long>(load.events_seen()),
                               chunk.image);
        }
      }
    }
    return found == Reader::Found::end;
  }

  Plan& plan_;
  const char* path_;
  const LoadSettings& settings_;
  Problem& problem_;
  Reader reader_;
  replay::Mapped<Scanned> images_;
  std::uint32_t image_count_ = 0;
};

bool Plan::load(const char* path, const LoadSettings& settings, Problem& problem) {
  return Loader{*this, path, settings, problem}.load();
}

Plan::~Plan() {
  for (std::uint32_t i = 0; i < image_count_; ++i) {
    Image& row = images_[i];
    unmap_array(row.thread_table, row.threads);
    unmap_array(row.operation_table, row.operations);
    unmap_array(row.epoch_table, row.epochs);
    unmap_array(row.run_table, row.runs);
    unmap_array(row.times, row.operations);
  }
  unmap_array(images_, image_count_);
}

}  // namespace ts::plan
