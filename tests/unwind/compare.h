/* Compares the unwinder's stack with glibc's backtrace(), which uses libgcc's unwinder. For code of
   any language and compiler. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the stack with both and compares. In code without tables, which backtrace() cannot pass,
   ours may be longer. */
void compare_stacks(void);
void compare_stacks_beyond(void);

/* In a signal handler: the interrupted code may be in the first instructions of a function, whose
   frame can only be found by registers that the unwinder does not follow. Then the stack is
   incomplete. */
void compare_interrupted_stacks(void);

/* Reports the results of a group's calls. Ends the program if a stack differed, or if fewer than
   99%, or another share, were complete. */
void report_stacks(const char* group);
void report_stacks_with(const char* group, unsigned long least_percent_whole);

/* In kernels.cpp and kernels.rs. */
void run_kernels(void);
void run_rust_kernels(void);

#ifdef __cplusplus
}
#endif
