// A library whose thread-local storage is large and dynamic: the dynamic linker asks malloc for it
// when a thread first looks at it.
#include <stddef.h>

static _Thread_local char storage[20000];

char* storage_of_thread(void);
char* storage_of_thread(void) { return storage; }
