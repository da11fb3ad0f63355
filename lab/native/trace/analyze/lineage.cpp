// From the oldest ancestor on, each up to its fork; see lineage.h.
#include "trace/analyze/lineage.h"

#include <algorithm>
#include <vector>

namespace ts::trace {
namespace {

struct Ancestor {
  const Image* image;
  std::uint64_t end_event;  // the fork itself is the first that does not count
};

void apply(const Event& event, ObjectSizes& live) {
  switch (event.kind) {
    case Kind::malloc:
    case Kind::calloc:
    case Kind::aligned:
      live.set(event.object, event.size);
      break;
    case Kind::realloc:
      if (live.find(event.object)) live.set(event.object, event.size);
      break;
    case Kind::free:
      live.remove(event.object);
      break;
    default:
      break;
  }
}

}  // namespace

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
      apply(event, inheritance.objects);
    }
  }
  return inheritance;
}

}  // namespace ts::trace
