// `tsmalloc explain PID` and `tsmalloc top PID`: where the resident memory of a process is, and how
// that changes.
#pragma once

namespace ts {

// `arguments` are those behind the verb, ended by null. Both return the exit status.
int explain(char** arguments);
int top(char** arguments);

}  // namespace ts
