"""A small C server and its load for the tests of `service`, and shims with known faults.

The server allocates for each request, answers with a line, and follows its modes. The load is open
loop: it sends requests when they are due, and prints output like wrk2's.
"""

SOCKETS = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
static struct sockaddr_in here(const char *port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}
"""

# server PORT [MODE...]; modes: daemon, stubborn (ignores SIGTERM), prefork, crash (at the 20th
# request), deaf (never listens), quit (at once).
SERVER = (
    SOCKETS
    + r"""
static int mode(int n, char **v, const char *name) {
  for (int i = 2; i < n; i++) if (strcmp(v[i], name) == 0) return 1;
  return 0;
}
int main(int count, char **words) {
  printf("starting\n"); fflush(stdout);
  if (mode(count, words, "quit")) { printf("cannot open the database\n"); return 3; }
  if (mode(count, words, "stubborn")) signal(SIGTERM, SIG_IGN);
  if (mode(count, words, "deaf")) for (;;) pause();
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = here(words[1]);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(s, (struct sockaddr *)&a, sizeof a) != 0) { perror("bind"); return 1; }
  if (mode(count, words, "daemon")) {
    if (fork() != 0) _exit(0);
    setsid();
    if (fork() != 0) _exit(0);
  }
  listen(s, 100);
  if (mode(count, words, "prefork")) {
    char *shared = malloc(32 << 20);
    memset(shared, 1, 32 << 20);
    for (int i = 0; i < 3; i++) if (fork() == 0) { prctl(PR_SET_PDEATHSIG, SIGTERM); break; }
  }
  static char *kept[1000];
  printf("ready now\n"); fflush(stdout);
  for (unsigned served = 0;;) {
    int c = accept(s, 0, 0);
    if (c < 0) continue;
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char byte;
    while (read(c, &byte, 1) == 1) {
      for (int i = 0; i < 20; i++) {
        char **block = &kept[(served * 7 + (unsigned)i) % 1000];
        free(*block);
        *block = malloc(64 + served % 400);
        memset(*block, 1, 64);
      }
      if (++served == 20 && mode(count, words, "crash")) abort();
      if (write(c, "y", 1) != 1) break;
    }
    close(c);
  }
}
"""
)

# load PORT RATE SECONDS
LOAD = (
    SOCKETS
    + r"""
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static int by_size(const void *x, const void *y) {
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}
int main(int count, char **words) {
  if (count < 4) return 9;
  const double rate = atof(words[2]), seconds = atof(words[3]);
  const int total = (int)(rate * seconds);
  double *times = malloc(sizeof(double) * (size_t)(total + 1)), sum = 0;
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = here(words[1]);
  if (connect(s, (struct sockaddr *)&a, sizeof a) != 0) { perror("connect"); return 1; }
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const double begin = now();
  for (int i = 0; i < total; i++) {
    const double due = begin + i / rate;
    double wait = due - now();
    if (wait > 0) usleep((unsigned)(wait * 1e6));
    char byte = 'x';
    if (write(s, &byte, 1) != 1 || read(s, &byte, 1) != 1) { printf("no answer\n"); return 1; }
    times[i] = now() - due;
    sum += times[i];
  }
  const double took = now() - begin;
  qsort(times, (size_t)total, sizeof(double), by_size);
  printf("Running %gs test @ port %s\n", seconds, words[1]);
  const double mean = sum / total * 1e3, most = times[total - 1] * 1e3;
  printf("    Latency   %.3fms  1.00ms  %.3fms  90.00%%\n", mean, most);
  printf("  Latency Distribution (HdrHistogram - Recorded Latency)\n");
  const double at[] = {50, 90, 99, 99.9, 100};
  for (int i = 0; i < 5; i++) {
    int n = (int)(at[i] / 100 * total);
    printf(" %.3f%%  %.3fms\n", at[i], times[n < total ? n : total - 1] * 1e3);
  }
  printf("  %d requests in %.2fs, 1.00KB read\nRequests/sec: %.2f\n", total, took, total / took);
  return 0;
}
"""
)

# glibc's malloc. STALL=N: every Nth free takes 5 ms. LEAK=B: leaks B bytes a second, touched.
SHIM = r"""
extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
static unsigned long stall, leak, frees;
static double started, leaked;
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
__attribute__((constructor)) static void start(void) {
  const char *s = getenv("STALL"), *l = getenv("LEAK");
  stall = s ? strtoul(s, 0, 10) : 0;
  leak = l ? strtoul(l, 0, 10) : 0;
  started = now();
}
void *malloc(size_t size) {
  if (leak) while ((now() - started) * (double)leak > leaked + 65536) {
    memset(__libc_malloc(65536), 1, 65536);
    leaked += 65536;
  }
  return __libc_malloc(size);
}
void free(void *block) {
  if (stall && block && ++frees % stall == 0) usleep(5000);
  __libc_free(block);
}
"""
