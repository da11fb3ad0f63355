// Reads figures of /proc without the heap, for C and C++.
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

// The beginning of a file, as a string; false if the file is missing.
__attribute__((unused)) static bool read_text(const char* path, char* text, size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t length = read(file, text, size - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  return length > 0;
}

// The number after `key` in a file such as /proc/self/status; -1 if the file or the key is missing.
__attribute__((unused)) static long figure_of(const char* path, const char* key) {
  char text[4096];
  const char* const at = read_text(path, text, sizeof text) ? strstr(text, key) : NULL;
  return at == NULL ? -1 : strtol(at + strlen(key), NULL, 10);
}
