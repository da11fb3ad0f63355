// The front door's verbs that inspect a running process from outside, and change it.
#pragma once

namespace ts {

// `arguments` are those after the verb, null-terminated. All return the exit status.
int explain(char** arguments);
int stats(char** arguments);
int top(char** arguments);
int purge(char** arguments);
int set_options(char** arguments);

// Run by the lab if it is installed. `arguments` are this program's.
int profile(char** arguments);

}  // namespace ts
