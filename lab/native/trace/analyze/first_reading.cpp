// One pass over the events with nothing but sizes; see first_reading.h.
#include "trace/analyze/first_reading.h"

#include <algorithm>
#include <utility>

namespace ts::trace {
namespace {

void note_gap(FirstReading& found, const Cursor& cursor) {
  if (const Gap* const gap = cursor.gap()) found.gaps.push_back(*gap);
}

}  // namespace

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
    if (makes_object(event.kind)) {
      live.set(event.object, event.size);
    } else if (event.kind == Kind::free) {
      found.touched.add(event.object);
      live.remove(event.object);
    } else if (event.kind == Kind::realloc) {
      found.touched.add(event.object);
      if (live.find(event.object)) live.set(event.object, event.size);
    }
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
