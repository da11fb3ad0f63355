/* Preloaded into replay: at the beginning of each frame that it writes, looks by itself which pages
 * of private memory without a file are in memory, by mincore, and appends (entry, page, page, ..., 0)
 * to the file WITNESS. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static char maps[1 << 20];
static unsigned char in_memory[1 << 16];
static uint64_t out[1 << 16];
static size_t used;
static int file = -1;

static void put(uint64_t number) {
  out[used++] = number;
  if (used < sizeof out / sizeof *out && number != 0) return;
  syscall(SYS_write, file, out, used * sizeof *out);
  used = 0;
}

static void look(uint64_t entry) {
  if (file < 0) file = open(getenv("WITNESS"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  put(entry + 1); /* none is zero */
  int list = open("/proc/self/maps", O_RDONLY);
  size_t length = 0;
  for (ssize_t got; (got = read(list, maps + length, sizeof maps - 1 - length)) > 0;) length += got;
  close(list);
  maps[length] = 0;
  for (char* line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
    unsigned long begin, end, inode;
    char rights[5];
    if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &begin, &end, rights, &inode) != 4) abort();
    if (rights[3] != 'p' || inode || strstr(line, "[stack]") || strstr(line, "[v")) continue;
    for (; begin < end; begin += sizeof in_memory * 4096) {
      size_t bytes = end - begin < sizeof in_memory * 4096 ? end - begin : sizeof in_memory * 4096;
      if (mincore((void*)begin, bytes, in_memory)) continue;
      for (size_t i = 0; i < bytes / 4096; ++i)
        if (in_memory[i] & 1) put(begin + i * 4096);
    }
  }
  put(0);
}

ssize_t write(int to, const void* from, size_t count) {
  const uint64_t* pair = from;
  if (count >= 16 && count % 16 == 0 && pair[1] == UINT64_MAX && pair[0] != UINT64_MAX)
    look(pair[0]);
  return syscall(SYS_write, to, from, count);
}
