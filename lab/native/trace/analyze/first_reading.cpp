// One pass over the events with nothing but sizes; see first_reading.h.
#include "trace/analyze/first_reading.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ts::trace {
namespace {

struct Ancestor {
  const Image* image;
  std::uint64_t end_event;  // the fork itself is the first that does not count
};

void note_gap(FirstReading& found, const Cursor& cursor) {
  if (const Gap* const gap = cursor.gap()) found.gaps.push_back(*gap);
}

}  // namespace

// From the oldest ancestor on.
Inheritance inherited_by(const Reader& reader, const Image& image) {
  Inheritance inheritance;
  std::vector<Ancestor> ancestors;
  for (const Image* child = &image; child->birth == Image::Birth::fork;) {
    const Image* const parent = reader.find_image(child->parent);
    // A parent begins before its child; what claims otherwise is damaged, and would lead in
    // circles.
    if (parent == nullptr || parent->number >= child->number) {
      inheritance.is_complete = false;
      break;
    }
    ancestors.push_back({parent, child->fork_event});
    child = parent;
  }
  std::reverse(ancestors.begin(), ancestors.end());
  for (const Ancestor& ancestor : ancestors) {
    Cursor cursor = reader.events(ancestor.image->number);
    for (Event event; cursor.next(event) && cursor.number() < ancestor.end_event;) {
      if (cursor.gap() != nullptr) inheritance.is_complete = false;
      inheritance.objects.apply(event);
    }
  }
  return inheritance;
}

FirstReading first_reading(const Reader& reader, const Image& image) {
  FirstReading found;
  Inheritance inheritance = inherited_by(reader, image);
  ObjectSizes live = std::move(inheritance.objects);
  found.knows_inherited = inheritance.is_complete;
  found.inherited = {live.objects(), live.bytes()};
  found.peak_bytes = live.bytes();
  Cursor cursor = reader.events(image.number);
  for (Event event; cursor.next(event);) {
    note_gap(found, cursor);
    ++found.events;
    found.end = cursor.number() + 1;
    found.last_ns = std::max(found.last_ns, event.time_ns);
    if (refers_to_object(event.kind)) found.touched.add(event.object);
    live.apply(event);
    if (live.bytes() > found.peak_bytes) {
      found.peak_bytes = live.bytes();
      found.peak_event = cursor.number();
    }
  }
  note_gap(found, cursor);
  found.touched.close();
  return found;
}

}  // namespace ts::trace
