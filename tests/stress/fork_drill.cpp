#include "stress/fork_drill.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "programs/support/content.h"
#include "programs/support/team.h"
#include "stress/post_office.h"

namespace ts::stress {
namespace {

using test::Content;
using test::Random;

constexpr unsigned child_seconds = 20;   // more than enough for a child that does not hang
constexpr std::size_t boxes = 512;       // blocks that children inherit
constexpr std::size_t thread_every = 8;  // every so many children also start a thread
constexpr std::size_t allocations_in_child = 64;
constexpr int damaged = 3;  // exit statuses of a child
constexpr int no_exec = 4;

// For the signal handler, too, which may use nothing else.
const Drilled* drilled = nullptr;
std::atomic<std::size_t> forks_done{0};
std::atomic<pid_t> current_child{0};

// Makes a block and fills it.
Block fill_block(Random& random, std::uint64_t key) {
  Block block = drilled->make(random);
  block.key = key;
  if (block.address != nullptr)
    Content{block.address, block.bytes, key}.write(block.address, block.bytes);
  return block;
}

// A block that was not to be had is intact.
bool is_intact(const Block& block) {
  return block.address == nullptr || Content{block.address, block.bytes, block.key}.first_damage(
                                         block.address, block.bytes) == test::intact;
}

// Makes blocks and posts them; takes those of others, checks and frees them.
void mixed_work(PostOffice<Block>& office, std::uint64_t seed, std::uint64_t key,
                const std::atomic<bool>& stop) {
  // The processors go to the forking thread and its children when they want them: more forks per
  // second, and more of them in the middle of what the others were doing.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10);
  Random random{seed};
  while (!stop.load(std::memory_order_relaxed)) {
    const Block mine = fill_block(random, key);
    if (!is_intact(mine)) {
      std::fprintf(stderr, "FAILED: %s: a thread found its block damaged\n", drilled->name);
      std::_Exit(1);
    }
    if (!office.post(random.below(boxes), mine)) drilled->release(mine);
    Block foreign{};
    if (random.one_in(2) || !office.take(random.below(boxes), foreign)) continue;
    if (!is_intact(foreign)) {
      std::fprintf(stderr, "FAILED: %s: a block changed between two threads\n", drilled->name);
      std::_Exit(1);
    }
    drilled->release(foreign);
  }
}

// The work of a child before it execs; 0, or its exit status.
int work_in_child(PostOffice<Block>& office, std::size_t number) {
  Random random{number};
  // The boxes are as they were at the fork; one that was being filled or emptied is refused for
  // good.
  for (std::size_t box = 0; box < boxes; ++box) {
    Block inherited{};
    if (random.one_in(2) || !office.take(box, inherited)) continue;
    if (!is_intact(inherited)) return damaged;
    drilled->release(inherited);
  }
  Block mine[allocations_in_child];
  for (Block& block : mine) block = fill_block(random, number);
  for (const Block& block : mine) {
    if (!is_intact(block)) return damaged;
    drilled->release(block);
  }
  return 0;
}

[[noreturn]] void be_child(PostOffice<Block>& office, std::size_t number) {
  // Ends the child, the exec'd program included.
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(child_seconds);
  int status = work_in_child(office, number);
  if (status == 0 && number % thread_every == 0)
    std::thread{[&] { status = work_in_child(office, number); }}.join();
  if (status != 0) ::_exit(status);
  ::execl("/bin/true", "true", static_cast<char*>(nullptr));
  ::_exit(no_exec);
}

// Says how a child ended if it did not end well.
const char* complaint_about(int status) {
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? "hung" : ::strsignal(WTERMSIG(status));
  switch (WEXITSTATUS(status)) {
    case 0:
      return nullptr;
    case damaged:
      return "found a block damaged";
    case no_exec:
      return "could not exec /bin/true";
    default:
      return "did not end with status 0";
  }
}

// Nothing has moved for longer than a child may take: the fork itself, a thread, or a child before
// its alarm hangs.
void on_alarm(int) {
  char line[512];
  const int length = std::snprintf(line, sizeof line, "FAILED: %s: hang after fork %zu\n",
                                   drilled->name, forks_done.load());
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, line, static_cast<std::size_t>(length));
  if (const pid_t child = current_child.load(); child > 0) ::kill(child, SIGKILL);
  ::_exit(1);
}

// Forks `forks` times; false after the first child that did not end well.
bool fork_often(PostOffice<Block>& office, std::size_t forks) {
  for (std::size_t number = 1; number <= forks; ++number) {
    ::alarm(child_seconds + 10);
    const pid_t child = ::fork();
    if (child == 0) be_child(office, number);
    if (child < 0) {
      std::perror("fork");
      return false;
    }
    current_child = child;
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    current_child = 0;
    forks_done = number;
    if (const char* complaint = complaint_about(status)) {
      std::fprintf(stderr, "FAILED: %s: child %zu %s\n", drilled->name, number, complaint);
      return false;
    }
  }
  return true;
}

}  // namespace

int run_drill(const Drilled& of, const Drill& drill) {
  drilled = &of;
  std::signal(SIGALRM, on_alarm);
  PostOffice<Block> office{boxes};
  std::atomic<bool> stop{false};
  bool sound = false;
  test::run_team(drill.threads + 1, [&](std::uint32_t number) {
    if (number < drill.threads)
      return mixed_work(office, test::seed_of(drill.seed, number), number, stop);
    sound = fork_often(office, drill.forks);
    stop = true;
    ::alarm(child_seconds);  // for the threads to end
  });
  ::alarm(0);
  for (std::size_t box = 0; box < boxes; ++box) {
    Block left{};
    if (office.take(box, left)) of.release(left);
  }
  if (!sound) return 1;
  std::printf(
      "%s: %zu children of a process with %zu threads allocated, freed and ran /bin/true "
      "(seed %llu)\n",
      of.name, forks_done.load(), drill.threads, static_cast<unsigned long long>(drill.seed));
  return 0;
}

}  // namespace ts::stress
