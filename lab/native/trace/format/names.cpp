// The words for what a trace tells.
#include "trace/format/event.h"

namespace ts::trace {

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::malloc:
      return "malloc";
    case Kind::calloc:
      return "calloc";
    case Kind::aligned:
      return "aligned";
    case Kind::realloc:
      return "realloc";
    case Kind::free:
      return "free";
    case Kind::refused:
      return "refused";
    case Kind::thread_begin:
      return "thread_begin";
    case Kind::thread_end:
      return "thread_end";
    case Kind::fork:
      return "fork";
    case Kind::count:
      break;
  }
  return "unknown";
}

std::string_view name(Image::Birth birth) {
  switch (birth) {
    case Image::Birth::root:
      return "root";
    case Image::Birth::fork:
      return "fork";
    case Image::Birth::exec:
      return "exec";
    case Image::Birth::unknown:
      break;
  }
  return "unknown";
}

std::string_view name(Image::End end) {
  switch (end) {
    case Image::End::exited:
      return "exited";
    case Image::End::exec:
      return "exec";
    case Image::End::killed:
      return "killed";
    case Image::End::unknown:
      break;
  }
  return "unknown";
}

}  // namespace ts::trace
