// A program that is profiled from its start to its end, whichever way it ends.
//
// A process writes its profile in exit(). One that a signal or _exit ends does not, so this process
// traces it, by ptrace, to its end: there the kernel stops it once more with its memory, of which the
// profile is read from outside. Nothing else stops it but the delivery of signals, forks and execs.
#pragma once

namespace ts {

// Runs a command under the engine, its options in the environment, with its input, output and signals.
// `output` is where its processes write, from the root: a file, or with %p. Returns the exit status.
int run_profiled(char** command, const char* output, bool is_peak);

}  // namespace ts
