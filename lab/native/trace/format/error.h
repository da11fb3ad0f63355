// Errors of traces.
//
// Why it exists: a reader of the message has a file and a question. So each says what is the matter
// with which file, and what to do. What it refuses to do: stand for damage of which the
// rest can still be read; that is a Damage (reader.h), and no exception.
#pragma once

#include <stdexcept>

namespace ts::trace {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ts::trace
