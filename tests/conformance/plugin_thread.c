// A library whose constructor starts a thread and joins it, for plugins.c. The thread does what the
// program says, while the constructor's has the lock of the dynamic linker.
#include <pthread.h>
#include <stddef.h>

extern void (*work_of_plugin)(void);

static void* work(void* unused) {
  work_of_plugin();
  return unused;
}

__attribute__((constructor)) static void on_load(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, NULL) == 0) pthread_join(thread, NULL);
}
