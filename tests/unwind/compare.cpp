#include "unwind/compare.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "unwind/unwind.h"

namespace {

using ts::os::max_stack_frames;
using ts::os::UnwoundStack;

// For all threads, and for the child of a vfork, which shares them.
struct Counts {
  std::atomic<unsigned long> stacks{0};
  std::atomic<unsigned long> frames{0};
  std::atomic<unsigned long> whole{0};  // for those with no more frames than there is room for
  std::atomic<unsigned long> too_deep{0};
  std::atomic<unsigned long> different{0};
};
Counts of_group;
Counts of_all;

void print_frame(unsigned number, const UnwoundStack& ours, void* const* theirs,
                 unsigned their_depth) {
  void* const address =
      number < their_depth ? theirs[number] : reinterpret_cast<void*>(ours.frames[number]);
  Dl_info info{};
  dladdr(address, &info);
  std::fprintf(stderr, "  %p  %p  %s of %s\n",
               number < ours.depth ? reinterpret_cast<void*>(ours.frames[number]) : nullptr,
               number < their_depth ? theirs[number] : nullptr,
               info.dli_sname == nullptr ? "?" : info.dli_sname,
               info.dli_fname == nullptr ? "?" : info.dli_fname);
}

void print_both(const UnwoundStack& ours, void* const* theirs, unsigned their_depth) {
  std::fprintf(stderr, "DIFFERENT: ours has %u frames%s, backtrace() %u\n", ours.depth,
               ours.is_whole ? "" : " and is not whole", their_depth);
  for (unsigned i = 0; i < ours.depth || i < their_depth; ++i)
    print_frame(i, ours, theirs, their_depth);
}

enum class Allows { nothing, longer, broken };

bool are_same(const UnwoundStack& ours, void* const* theirs, unsigned their_depth, Allows allows) {
  const unsigned most = their_depth < max_stack_frames ? their_depth : max_stack_frames;
  for (unsigned i = 0; i < ours.depth && i < most; ++i) {
    if (ours.frames[i] != reinterpret_cast<std::uintptr_t>(theirs[i])) return false;
  }
  if (ours.depth == most)
    return ours.is_whole == (their_depth <= max_stack_frames) || allows != Allows::nothing;
  if (ours.depth > most) return allows == Allows::longer;
  return allows == Allows::broken && !ours.is_whole;
}

[[gnu::noinline]] void compare(const void* caller, Allows allows) {
  errno = 7;
  UnwoundStack ours;
  ts::os::unwind(ours, caller);
  constexpr int most = 1024;
  void* addresses[most];
  if (errno != 7) ++of_group.different;
  const int count = backtrace(addresses, most);
  // From the same frame on.
  int first = 0;
  while (first < count && addresses[first] != caller) ++first;
  const auto their_depth = static_cast<unsigned>(count - first);
  ++of_group.stacks;
  of_group.frames += ours.depth;
  of_group.whole += ours.is_whole ? 1 : 0;
  of_group.too_deep += !ours.is_whole && ours.depth == max_stack_frames ? 1 : 0;
  if (are_same(ours, addresses + first, their_depth, allows)) return;
  if (of_group.different.fetch_add(1) < 3) print_both(ours, addresses + first, their_depth);
}

void move(std::atomic<unsigned long>& from, std::atomic<unsigned long>& to) {
  to += from.exchange(0);
}

void print(const char* group, const Counts& counts) {
  const unsigned long stacks = counts.stacks;
  const unsigned long short_enough = stacks - counts.too_deep;
  std::printf("%-28s %8lu stacks, %5.1f frames each; %8.4f %% of %lu whole, %lu different\n", group,
              stacks,
              stacks == 0 ? 0.0 : static_cast<double>(counts.frames) / static_cast<double>(stacks),
              short_enough == 0
                  ? 100.0
                  : 100.0 * static_cast<double>(counts.whole) / static_cast<double>(short_enough),
              short_enough, counts.different.load());
  std::fflush(stdout);
}

}  // namespace

// glibc's clone has no table on riscv64: libgcc's unwinder ends before it, ours at it.
#if defined(__riscv)
constexpr Allows in_all_code = Allows::longer;
#else
constexpr Allows in_all_code = Allows::nothing;
#endif
void compare_stacks() { compare(__builtin_return_address(0), in_all_code); }
void compare_stacks_beyond() { compare(__builtin_return_address(0), Allows::longer); }
void compare_interrupted_stacks() { compare(__builtin_return_address(0), Allows::broken); }

void report_stacks(const char* group) { report_stacks_with(group, 99); }

void report_stacks_with(const char* group, unsigned long least_percent_whole) {
  print(group, of_group);
  const unsigned long short_enough = of_group.stacks - of_group.too_deep;
  const bool is_whole = 100 * of_group.whole >= least_percent_whole * short_enough;
  if (of_group.stacks == 0 || of_group.different != 0 || !is_whole) {
    std::printf("FAILED\n");
    std::fflush(stdout);
    _exit(1);
  }
  move(of_group.stacks, of_all.stacks);
  move(of_group.frames, of_all.frames);
  move(of_group.whole, of_all.whole);
  move(of_group.too_deep, of_all.too_deep);
  if (group[0] == '-') print("all", of_all);
}
