// The verbs of the front door that look at a running process from outside, and change it.
#pragma once

namespace ts {

// `arguments` are those behind the verb, ended by null. All return the exit status.
int explain(char** arguments);
int stats(char** arguments);
int top(char** arguments);
int purge(char** arguments);
int set_options(char** arguments);

// By the lab where it is there. `arguments` are those of this program.
int profile(char** arguments);

}  // namespace ts
