// A program that is profiled from its start to its end, however it ends.
//
// A process writes its profile in exit(). If a signal or _exit ends it, it cannot, so this process
// traces it with ptrace: at exit the kernel stops it once more while its memory is intact, and the
// profile is read from outside. Otherwise it stops only for the delivery of signals, forks and
// execs.
#pragma once

namespace ts {

// Runs a command under the engine, with options in the environment, and with this process's input,
// output and signals. `output` is where its processes write, as an absolute path: a file, or a
// pattern with %p. Returns the exit status.
int run_profiled(char** command, const char* output, bool is_peak);

}  // namespace ts
