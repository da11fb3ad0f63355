// A library with static thread-local storage: it takes some of the little left for libraries loaded
// at run time.
static _Thread_local char storage[256] __attribute__((tls_model("initial-exec")));

char* storage_of_thread(void);
char* storage_of_thread(void) { return storage; }
