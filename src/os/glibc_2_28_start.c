/* The start of a program as glibc 2.28 knows it, for dynamic programs that are linked on a newer
   glibc. Since 2.34 the start-up file leaves a program's constructors to __libc_start_main, but
   older versions expect them as arguments. This function replaces libc's and passes them. Newer
   versions accept that, as from all old programs. */
#include "glibc_2_28.h"

#ifdef __GLIBC__

typedef void Constructor(int, char**, char**);
typedef int Main(int, char**, char**);

int former_start_main(Main*, int, char**, Constructor*, void (*)(void), void (*)(void), void*);
__asm__(".symver former_start_main,__libc_start_main@" TS_FIRST_GLIBC);

extern __attribute__((visibility("hidden"))) Constructor* __init_array_start[];
extern __attribute__((visibility("hidden"))) Constructor* __init_array_end[];
extern __attribute__((visibility("hidden"))) void _init(void);

static void construct(int count, char** arguments, char** environment) {
  _init();
  for (Constructor** each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(count, arguments, environment);
  }
}

__attribute__((visibility("hidden"))) int __libc_start_main(Main* main, int count, char** arguments,
                                                            Constructor* init, void (*fini)(void),
                                                            void (*at_exit)(void), void* stack) {
  return former_start_main(main, count, arguments, init ? init : construct, fini, at_exit, stack);
}

#endif
