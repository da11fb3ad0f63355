// A library with large dynamic thread-local storage: the dynamic linker calls malloc for it when a
// thread first accesses it.
#include <stddef.h>

static _Thread_local char storage[20000];

char* storage_of_thread(void);
char* storage_of_thread(void) { return storage; }
