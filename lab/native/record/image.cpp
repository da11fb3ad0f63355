// Finding the ring and taking a place in it; forks, exits, and actions that become forbidden. See
// shim.h.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>

#include "common/system.h"
#include "interpose/next.h"
#include "record/shim.h"

namespace ts::record {
namespace {

enum BeginStep : std::uint32_t { not_begun, beginning, begun };

constinit OwnPage no_page{};
constinit std::atomic<bool> is_over{false};

// This image's; a forked child finds its parent's here.
constinit std::uint64_t own_id = 0;
constinit std::int32_t own_pid = 0;
constinit char own_program[name_bytes]{};
constinit char own_allocator[name_bytes]{};

bool make_own_page() {
  void* const page =
      mmap(nullptr, sizeof(OwnPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  OwnPage* expected = &no_page;
  // Without the madvise (Linux before 4.14) a child that was not announced would write as its
  // parent.
  if (madvise(page, sizeof(OwnPage), MADV_WIPEONFORK) != 0 ||
      !own_page.compare_exchange_strong(expected, static_cast<OwnPage*>(page),
                                        std::memory_order_release, std::memory_order_relaxed)) {
    munmap(page, sizeof(OwnPage));
    return false;
  }
  return true;
}

void copy_base_name(char (&to)[name_bytes], const char* path) {
  std::strncpy(to, base_name(path), name_bytes - 1);
  to[name_bytes - 1] = '\0';
}

void learn_names() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length >= 0) path[length] = '\0';
  copy_base_name(own_program, length > 0 ? path : program_invocation_short_name);
  Dl_info info{};
  if (dladdr(address_of_next_malloc(), &info) != 0 && info.dli_fname != nullptr) {
    copy_base_name(own_allocator, info.dli_fname);
  }
}

// An address space limit prevents mapping the ring; at least that is reported.
void note_lack_of_room(int file) {
  void* const mapped = mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return;
  static_cast<Ring*>(mapped)->images_without_mapping.fetch_add(1, std::memory_order_relaxed);
  munmap(mapped, sizeof(Ring));
}

bool map_ring(int file) {
  // Not fstat, which is a function in glibc only since 2.33.
  const off_t end = lseek(file, 0, SEEK_END);
  if (end < static_cast<off_t>(sizeof(Ring))) return false;
  const auto size = static_cast<std::size_t>(end);
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    note_lack_of_room(file);
    return false;
  }
  auto* const ring = static_cast<Ring*>(mapped);
  if (std::memcmp(ring->magic, ring_magic, sizeof ring_magic) != 0) {
    munmap(mapped, size);
    return false;
  }
  own_ring.store(ring, std::memory_order_release);
  return true;
}

bool find_ring() {
  const char* const path = secure_getenv(ring_variable);
  if (path == nullptr || *path == '\0') return false;
  const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  const bool is_mapped = map_ring(file);
  close(file);
  return is_mapped;
}

// Whether our pids mean nothing to the collector. If that cannot be determined, assume that they
// do.
bool is_in_another_pid_namespace(const Ring& ring) {
  char name[sizeof ring.pid_namespace];
  const ssize_t length = readlink("/proc/self/ns/pid", name, sizeof name - 1);
  if (length < 0 || ring.pid_namespace[0] == '\0') return false;
  name[length] = '\0';
  return std::strcmp(name, ring.pid_namespace) != 0;
}

ImagePlace* claim_place(Ring& ring, std::int32_t pid) {
  for (ImagePlace& place : ring.images) {
    std::int32_t unclaimed = 0;
    // acquire: pairs with the release by which the collector frees the place; its zeros are seen
    if (place.claimed_by.compare_exchange_strong(unclaimed, pid, std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
      return &place;
    }
  }
  ring.images_without_place.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

ImagePlace* take_place(ImageBirth birth, std::uint32_t fork_number) {
  Ring& ring = *own_ring.load(std::memory_order_relaxed);
  const std::int32_t pid = getpid();
  ImagePlace* const place = claim_place(ring, pid);
  if (place == nullptr) return nullptr;
  place->index = static_cast<std::uint32_t>(place - ring.images);
  place->birth = birth;
  place->parent_id = birth == ImageBirth::fork ? own_id : 0;
  place->fork_number = fork_number;
  place->parent_pid = getppid();
  place->is_elsewhere = is_in_another_pid_namespace(ring) ? 1 : 0;
  place->begin_time = read_clock();
  std::memcpy(place->program, own_program, sizeof own_program);
  std::memcpy(place->allocator, own_allocator, sizeof own_allocator);
  place->next_ticket.store(1, std::memory_order_relaxed);
  place->next_thread.store(1, std::memory_order_relaxed);
  own_id = ring.next_id.fetch_add(1, std::memory_order_relaxed) + 1;
  place->id = own_id;
  own_pid = pid;
  self = Thread{};
  self.number = 1;
  self.is_announced = 1;
  // release: pairs with the collector's acquire; all of the above is seen
  place->is_ready.store(1, std::memory_order_release);
  return place;
}

void conclude(OwnPage& page, ImagePlace* place) {
  // release: pairs with the acquires in own_image and begin_image
  page.image.store(place, std::memory_order_release);
  page.step.store(begun, std::memory_order_release);
}

// A child has one thread, and a copy of all its parent's memory except that page.
// fork_number: 0 if the parent has not announced it.
void begin_child(std::uint32_t fork_number) {
  OwnPage& page = *own_page.load(std::memory_order_relaxed);
  // acquire: a thread that sees a ring sees that its beginning is under way
  const bool can_begin = own_ring.load(std::memory_order_acquire) != nullptr &&
                         !is_over.load(std::memory_order_relaxed) &&
                         page.step.load(std::memory_order_acquire) == not_begun;
  if (!can_begin) return;
  const int saved_errno = errno;
  page.step.store(beginning, std::memory_order_relaxed);
  ImagePlace* const place = take_place(ImageBirth::fork, fork_number);
  if (place != nullptr) watch_threads_in_child();
  conclude(page, place);
  errno = saved_errno;
}

// --- forks, exits, and actions that become forbidden ---
//
// A replay needs to know the creator of each image and thread, and the collector how an image
// ended. Nothing is missed for good: a child forked, or a thread started, without our knowledge
// (clone, timers, thrd_create within libc) is noticed at its first event.

constinit Next<pid_t()> next_fork{"_Fork"};
constinit Next<void(int)> next_exit{"_exit"};
using Prctl = int(int, unsigned long, unsigned long, unsigned long, unsigned long);
constinit Next<Prctl> next_prctl{"prctl"};

// The child inherits the objects that are live now, so this is the fork's place in the order. Other
// threads may continue to allocate before it really happens; the child does not know what they got.
void before_fork() {
  ImagePlace* const image = own_image();
  if (image == nullptr) return;
  self.fork_number = image->next_fork.fetch_add(1, std::memory_order_relaxed) + 1;
  write_event(*image, RawKind::fork, self.fork_number, 0);
}

void in_parent() { self.fork_number = 0; }

void in_child() { begin_child(self.fork_number); }

void note_exit() {
  ImagePlace* const image =
      own_page.load(std::memory_order_relaxed)->image.load(std::memory_order_acquire);
  if (image == nullptr) return;
  // A child of vfork runs in our memory, and ends without us.
  if (may_call_system.load(std::memory_order_relaxed) && getpid() != own_pid) return;
  image->exits.store(1, std::memory_order_relaxed);
}

// For programs that return from main, or call exit.
[[gnu::destructor]] void note_exit_at_unload() { note_exit(); }

// A thread that forbids itself to read the processor's counter, or to make system calls, would be
// killed if we did so. Only prctl is watched: what a filter set with seccomp(2) itself forbids
// matters only when the ring is full, and then no more than for any other lock.
void before_prctl(int operation, unsigned long argument) {
  if (operation == PR_SET_TSC && argument == PR_TSC_SIGSEGV) {
    may_read_clock.store(false, std::memory_order_relaxed);
  }
  if (operation == PR_SET_SECCOMP) {
    may_call_system.store(false, std::memory_order_relaxed);
    if (argument == SECCOMP_MODE_STRICT) may_read_clock.store(false, std::memory_order_relaxed);
  }
}

// A forked child must not ask the loader, so everything is looked up now.
void watch_lifecycle() {
  next_fork.get();
  next_exit.get();
  next_prctl.get();
  if (void* const flag = look_up(RTLD_DEFAULT, "__libc_single_threaded")) {
    one_thread_flag = static_cast<const char*>(flag);
  }
  pthread_atfork(before_fork, in_parent, in_child);
  watch_threads();
}

// For a program image at its first event, or when the loader calls our constructor. libc has to be
// ready in both cases.
ImagePlace* begin_program() {
  if (environ == nullptr || !make_own_page()) return nullptr;
  OwnPage& page = *own_page.load(std::memory_order_relaxed);
  page.step.store(beginning, std::memory_order_relaxed);
  ImagePlace* place = nullptr;
  if (find_ring()) {
    learn_names();
    place = take_place(ImageBirth::exec, 0);
  }
  conclude(page, place);
  if (place != nullptr) watch_lifecycle();
  return place;
}

[[gnu::constructor]] void begin_at_load() { own_image(); }

}  // namespace

constinit std::atomic<OwnPage*> own_page{&no_page};
constinit std::atomic<Ring*> own_ring{nullptr};
constinit std::atomic<bool> may_read_clock{true};
constinit std::atomic<bool> may_call_system{true};

ImagePlace* begin_image() {
  if (own_page.load(std::memory_order_relaxed) != &no_page) {
    begin_child(0);  // does nothing if all was done
    return own_page.load(std::memory_order_relaxed)->image.load(std::memory_order_acquire);
  }
  const int saved_errno = errno;
  ImagePlace* const place = begin_program();
  errno = saved_errno;
  return place;
}

void stop_recording() {
  is_over.store(true, std::memory_order_relaxed);
  own_page.load(std::memory_order_relaxed)->image.store(nullptr, std::memory_order_relaxed);
}

std::uint64_t read_clock_slow() {
  const Ring& ring = *own_ring.load(std::memory_order_acquire);
  if (!may_read_clock.load(std::memory_order_relaxed)) {
    return ring.now.load(std::memory_order_relaxed);
  }
  return unsigned_now_ns();
}

}  // namespace ts::record

extern "C" {

// fork calls the handlers, and this function does not.
pid_t _Fork() noexcept {
  ts::record::before_fork();
  auto* const next = ts::record::next_fork.get();
  const pid_t child = next != nullptr ? next() : -1;
  if (child == 0) {
    ts::record::in_child();
  } else {
    ts::record::in_parent();
  }
  return child;
}

void _exit(int status) {
  ts::record::note_exit();
  ts::record::next_exit.get()(status);
  __builtin_unreachable();
}

void _Exit(int status) noexcept { _exit(status); }

int prctl(int operation, ...) noexcept {
  va_list list;
  va_start(list, operation);
  unsigned long arguments[4];
  for (unsigned long& argument : arguments) argument = va_arg(list, unsigned long);
  va_end(list);
  ts::record::before_prctl(operation, arguments[0]);
  return ts::record::next_prctl.get()(operation, arguments[0], arguments[1], arguments[2],
                                      arguments[3]);
}

}  // extern "C"
