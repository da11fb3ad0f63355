// A library with dynamic or static thread-local storage, one of those that a program has loaded
// before ours (loaded.c).
#if STATIC_STORAGE
static _Thread_local int calls[8] __attribute__((tls_model("initial-exec")));
#else
static _Thread_local int calls[256];
#endif

int count_calls_of_thread(void);
int count_calls_of_thread(void) { return ++calls[0]; }
