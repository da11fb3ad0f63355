// A library whose thread-local storage is static: it takes some of the little that is left for
// libraries that are loaded while a program runs.
static _Thread_local char storage[256] __attribute__((tls_model("initial-exec")));

char* storage_of_thread(void);
char* storage_of_thread(void) { return storage; }
