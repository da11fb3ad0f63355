// The command line of replay, as values.
//
// Why it exists: everything that can be wrong in a request is found before anything is run. What it
// refuses to do: guess; each mistake ends the program with a sentence that names the remedy.
#pragma once

#include "replay/settings.h"

namespace ts::replay {

struct Request {
  const char* plan = nullptr;
  const char* schedule = "asap";  // as it was asked for
  const char* touch = "page";
  Settings settings;
  Tickets tickets;
};

// Does not return when the arguments are wrong, or ask for help.
void parse_request(int argument_count, char** arguments, Request& request);

}  // namespace ts::replay
