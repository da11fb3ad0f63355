/* Comparing the unwinder's stack with that of glibc's backtrace(), which uses libgcc's unwinder. For
   code of any language and compiler. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the stack twice and compares the two. In code without tables, which backtrace() cannot pass,
   ours may be longer. */
void compare_stacks(void);
void compare_stacks_beyond(void);

/* In a signal handler: the interrupted code may be in the first instructions of a function, of whose
   frame only registers tell that the unwinder does not follow. Then the stack is not whole. */
void compare_interrupted_stacks(void);

/* In a coroutine whose beginning has neither a table nor a frame pointer: neither goes further. */
void compare_fiber_stacks(void);

/* What the calls of a group showed. Ends the program if a stack differed, or less than 99 in 100, or
   another share, were whole. */
void report_stacks(const char* group);
void report_stacks_with(const char* group, unsigned long least_percent_whole);

/* Of kernels.cpp and kernels.rs. */
void run_kernels(void);
void run_rust_kernels(void);

#ifdef __cplusplus
}
#endif
