#include "reliability/faults/system_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "base/bits.h"
#include "programs/support/caught_calls.h"

extern "C" {
// The C library's own functions, by its private names.
void* __sbrk(std::intptr_t) noexcept;
int __pthread_key_create(pthread_key_t*, void (*)(void*)) noexcept;
}

namespace ts::faults {
namespace {

// The threads of a run take turns, with a join in between, so nothing here is used concurrently.
Plan plan;
Record* record = nullptr;
std::atomic<bool> armed{false};
std::uint64_t milliseconds_passed = 0;

// The kernel, without interception.
template <class... Arguments>
long ask(long number, Arguments... arguments) {
  const CaughtCall call{number, {static_cast<long>(arguments)...}, 0};
  return ask_system(&call);
}

// The result as libc's wrappers return it: -1, and the error in errno.
long answer(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

struct Trace {
  std::uintptr_t caller;
  bool is_above = false;
  unsigned count = 0;
  std::uint64_t place;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto& trace = *static_cast<Trace*>(argument);
  const std::uintptr_t address = _Unwind_GetIP(context);
  trace.is_above = trace.is_above || address == trace.caller;
  if (trace.is_above) trace.place = mix(trace.place ^ address);
  return trace.is_above && ++trace.count == 3 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// Whether this call is to fail. Records the call in any case.
bool fails(Call call, std::uintptr_t caller) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const std::uint32_t number = record->calls++;
  const bool is_chosen = number >= plan.first && number - plan.first < plan.count;
  Trace trace{.caller = caller, .place = static_cast<std::uint64_t>(call) + 1};
  if (number < most_calls) {
    _Unwind_Backtrace(add_frame, &trace);
    record->places[number] = trace.place;
    record->kinds[number] = call;
  }
  if (!is_chosen) return false;
  if (number < most_calls) record->failed_places[record->failed] = trace.place;
  ++record->failed;
  return true;
}

long map(const CaughtCall& call) {
  if (fails(Call::mmap, call.caller)) return -ENOMEM;
  CaughtCall allowed = call;
  if (armed.load(std::memory_order_relaxed)) {
    const World& world = plan.world;
    const bool is_placed = call.argument[0] != 0 && (call.argument[3] & MAP_FIXED) == 0;
    record->has_placed = record->has_placed || is_placed;
    if (world.most_at_once != 0 &&
        static_cast<unsigned long>(call.argument[1]) > world.most_at_once)
      return -ENOMEM;
    if (world.no_placement && is_placed) allowed.argument[0] = 0;
  }
  return ask_system(&allowed);
}

// A failed move to a fixed place leaves that place unmapped, and since Linux 6.17 part of the range
// may already have moved; or it fails before anything was done, as when all calls fail.
long remap(const CaughtCall& call) {
  if (!fails(Call::mremap, call.caller)) return ask_system(&call);
  const auto& [begin, bytes, new_bytes, flags, to, none] = call.argument;
  if ((flags & MREMAP_FIXED) == 0 || plan.count == never) return -ENOMEM;
  const long half = plan.count == 1 ? bytes / 2 / 4096 * 4096 : 0;
  if (half != 0) ask(SYS_mremap, begin, half, new_bytes - bytes + half, flags, to);
  ask(SYS_munmap, to + half, new_bytes - half);
  return -ENOMEM;
}

bool break_may_move(bool upwards, std::uintptr_t caller) {
  if (fails(Call::brk, caller)) return false;
  if (!armed.load(std::memory_order_relaxed)) return true;
  record->has_moved_break = true;
  return !(upwards && plan.world.break_is_stuck);
}

// The break stays where it is if it cannot move.
long move_break(const CaughtCall& call) {
  const long end = ask(SYS_brk, 0);
  if (call.argument[0] == 0) return end;
  return break_may_move(call.argument[0] > end, call.caller) ? ask_system(&call) : end;
}

long read_clock(const CaughtCall& call) {
  const long result = ask_system(&call);
  if (call.argument[0] == CLOCK_MONOTONIC_COARSE && armed.load(std::memory_order_relaxed)) {
    auto* const now = reinterpret_cast<timespec*>(call.argument[1]);
    now->tv_sec = static_cast<time_t>(1000 + milliseconds_passed / 1000);
    now->tv_nsec = static_cast<long>(milliseconds_passed % 1000 * 1'000'000);
  }
  return result;
}

long serve(const CaughtCall* call) {
  switch (call->number) {
    case SYS_mmap:
      return map(*call);
    case SYS_mremap:
      return remap(*call);
    case SYS_brk:
      return move_break(*call);
    case SYS_clock_gettime:
      return read_clock(*call);
    case SYS_munmap:
      return fails(Call::munmap, call->caller) ? -ENOMEM : ask_system(call);
    case SYS_mprotect:
      return fails(Call::mprotect, call->caller) ? -ENOMEM : ask_system(call);
    case SYS_madvise:
      return fails(Call::madvise, call->caller) ? -ENOMEM : ask_system(call);
    case SYS_openat:
    case SYS_pread64:
      return fails(Call::open_or_read, call->caller) ? -ENOMEM : ask_system(call);
    default:
      return ask_system(call);
  }
}

template <class... Arguments>
long serve_named(void* caller, long number, Arguments... arguments) {
  const CaughtCall call{number, {static_cast<long>(arguments)...}, ts::address_of(caller)};
  return answer(serve(&call));
}

// The calls of the allocator under test, in a library or in this program. False if the system
// cannot catch them.
bool catch_calls_of_allocator() {
  static constexpr int numbers[] = {SYS_mmap,     SYS_munmap,  SYS_mremap,
                                    SYS_mprotect, SYS_madvise, SYS_brk,
                                    SYS_openat,   SYS_pread64, SYS_clock_gettime};
  void* const library = reinterpret_cast<void*>(&std::malloc);
  Dl_info info;
  const bool is_libc =
      ::dladdr(library, &info) != 0 && std::strstr(info.dli_fname, "/libc.") != nullptr;
  const void* const within = is_libc ? reinterpret_cast<void*>(&serve) : library;
  return catch_calls(within, numbers, sizeof numbers / sizeof *numbers, serve) == 0;
}

// libc has no second name for it that can be linked.
using SetSpecific = int (*)(pthread_key_t, const void*);
SetSpecific libc_set_specific() {
  static constinit SetSpecific found = nullptr;
  if (found == nullptr)
    found = reinterpret_cast<SetSpecific>(::dlsym(RTLD_NEXT, "pthread_setspecific"));
  return found;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))
long as_number(const void* p) { return reinterpret_cast<long>(p); }

}  // namespace

const char* name_of(Call call) noexcept {
  static constexpr const char* names[call_kinds] = {"mmap",
                                                    "munmap",
                                                    "mremap",
                                                    "mprotect",
                                                    "madvise",
                                                    "brk",
                                                    "pthread_key_create",
                                                    "pthread_setspecific",
                                                    "openat or pread"};
  return names[static_cast<std::size_t>(call)];
}

void arm(const Plan& next_plan, Record& into) noexcept {
  plan = next_plan;
  record = &into;
  record->catches = catch_calls_of_allocator();
  armed = true;
}

void disarm() noexcept { armed = false; }

void pass_time(unsigned milliseconds) noexcept { milliseconds_passed += milliseconds; }

}  // namespace ts::faults

using namespace ts::faults;

extern "C" {

// By name: what tsmalloc's libraries make visible, and all calls of other allocators
// (dev/conformance).
void* mmap(void* begin, std::size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  return reinterpret_cast<void*>(
      serve_named(CALLER, SYS_mmap, as_number(begin), bytes, protection, flags, file, offset));
}

int munmap(void* begin, std::size_t bytes) noexcept {
  return static_cast<int>(serve_named(CALLER, SYS_munmap, as_number(begin), bytes));
}

int mprotect(void* begin, std::size_t bytes, int protection) noexcept {
  return static_cast<int>(serve_named(CALLER, SYS_mprotect, as_number(begin), bytes, protection));
}

int madvise(void* begin, std::size_t bytes, int advice) noexcept {
  return static_cast<int>(serve_named(CALLER, SYS_madvise, as_number(begin), bytes, advice));
}

void* mremap(void* begin, std::size_t bytes, std::size_t new_bytes, int flags, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, flags);
  void* const to = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  return reinterpret_cast<void*>(
      serve_named(CALLER, SYS_mremap, as_number(begin), bytes, new_bytes, flags, as_number(to)));
}

// Through libc's own, which knows where the break is.
void* sbrk(std::intptr_t bytes) noexcept {
  if (bytes == 0 || break_may_move(bytes > 0, ts::address_of(CALLER))) return __sbrk(bytes);
  errno = ENOMEM;
  return reinterpret_cast<void*>(-1);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  return static_cast<int>(
      serve_named(CALLER, SYS_clock_gettime, clock, reinterpret_cast<long>(now)));
}

long syscall(long number, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, number);
  long value[6];
  for (long& each : value) each = va_arg(arguments, long);
  va_end(arguments);
  return serve_named(CALLER, number, value[0], value[1], value[2], value[3], value[4], value[5]);
}

// The process must not see the kernel's vDSO clock, so each reading is a call.
unsigned long getauxval(unsigned long kind) noexcept {
  using GetAuxiliary = unsigned long (*)(unsigned long);
  if (kind == AT_SYSINFO_EHDR) return 0;
  static const auto libc_getauxval =
      reinterpret_cast<GetAuxiliary>(::dlsym(RTLD_NEXT, "getauxval"));
  return libc_getauxval(kind);
}

int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) noexcept {
  return fails(Call::key_create, ts::address_of(CALLER)) ? EAGAIN
                                                         : __pthread_key_create(key, destructor);
}

int pthread_setspecific(pthread_key_t key, const void* value) noexcept {
  return fails(Call::set_specific, ts::address_of(CALLER)) ? ENOMEM
                                                           : libc_set_specific()(key, value);
}

}  // extern "C"
