// A library for plugins.c whose constructor starts a thread and joins it. The thread does what the
// program asks, while the constructor's thread holds the dynamic linker's lock.
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
