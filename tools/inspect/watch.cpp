// The screen and the output lines of `tsmalloc top`; see watch.h.
#include "inspect/watch.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <iterator>

namespace ts {

namespace {

// The terminal's alternate screen, without a cursor and with long lines cut; back again; to the
// upper left corner; clear to the end.
constexpr char begin_screen[] = "\033[?1049h\033[?25l\033[?7l";
constexpr char end_screen[] = "\033[?7h\033[?25h\033[?1049l";
constexpr char go_home[] = "\033[H";
constexpr char clear_line[] = "\033[K\n";
constexpr char clear_rest[] = "\033[J";

// A number as printed: values below half of the last digit count as zero, without a minus sign.
double change(std::size_t now, std::size_t before) {
  const double more = mib(now) - mib(before);
  return more > -0.05 && more < 0 ? 0 : more;
}

// Like the C library: the first variable that is set counts.
bool is_unicode() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const locale = std::getenv(name);
    if (locale == nullptr || *locale == '\0') continue;
    return strcasestr(locale, "utf-8") != nullptr || strcasestr(locale, "utf8") != nullptr;
  }
  return false;
}

// A line of the screen: three numbers, their meaning, and a bar in the remaining width.
constexpr std::size_t number_columns = 28;
constexpr int meaning_columns = 53;
constexpr std::size_t max_bar_columns = 40;
constexpr std::size_t min_bar_columns = 5;

constexpr char plain[] = "\033[0m";
constexpr char bold[] = "\033[1m";
constexpr const char* colours[] = {"\033[32m", "\033[33m", "\033[36m", "\033[90m"};  // by use

}  // namespace

// The signals wait in the descriptor, so that the terminal is always restored.
void Watch::begin() {
  if (signals_ >= 0) return;
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, &former_mask_);
  signals_ = signalfd(-1, &ends, SFD_CLOEXEC);
  has_screen_ = !is_json && isatty(STDOUT_FILENO) != 0;
  has_colours_ = !forbids_colours();
  has_blocks_ = is_unicode();
}

void Watch::begin_with_command() {
  begin();
  if (!has_screen_ && !is_json) lines_ = stderr;
}

void Watch::restore_signals() const { sigprocmask(SIG_SETMASK, &former_mask_, nullptr); }

bool Watch::should_continue() {
  begin();
  const Nanoseconds now = now_ns();
  const auto interval = static_cast<Nanoseconds>(seconds * static_cast<double>(ns_per_second));
  if (!has_begun()) {
    next_look_ = now + interval;
    return true;
  }
  if (shown_ >= times) return false;
  // Samples keep their interval, however long one takes; missed samples are left out.
  const Nanoseconds wait = std::max<Nanoseconds>(next_look_ - now, 0);
  next_look_ = now + wait + interval;
  const timespec pause{wait / ns_per_second, wait % ns_per_second};
  pollfd ends{signals_, POLLIN, 0};
  if (ppoll(&ends, 1, &pause, nullptr) == 0) return true;
  signalfd_siginfo info{};
  if (read(signals_, &info, sizeof info) == sizeof info) signal_ = static_cast<int>(info.ssi_signo);
  return false;
}

int Watch::show(const Report& report, const List<MapPiece>& map) {
  const Account& account = report.account;
  if (!has_begun()) first_ = before_ = account;
  const int error = is_json       ? print_json(report, {})
                    : has_screen_ ? show_screen(report, map)
                                  : show_line(account);
  before_ = account;
  ++shown_;
  return error;
}

int Watch::show(Reports& reports) {
  int error = 0;
  if (is_json) {
    error = reports.print_sum_as_json();
  } else if (has_screen_) {
    begin_page(reports.sum());
    std::printf("%s", clear_line);
    reports.print_table(clear_line);
    error = end_page();
  } else {
    error = show_line(reports.sum());
  }
  ++shown_;
  return error;
}

void Watch::end() const {
  if (!has_screen_) return;
  std::fputs(end_screen, stdout);
  (void)std::fflush(stdout);
}

// Resident memory in the last samples, scaled to their maximum.
void Watch::print_history() const {
  const std::size_t first = shown_ < max_history ? 0 : shown_ + 1 - max_history;
  std::size_t maximum = 1;
  for (const std::size_t bytes : history_) maximum = std::max(maximum, bytes);
  static constexpr const char* blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                           "\u2585", "\u2586", "\u2587", "\u2588"};
  static constexpr const char* letters[] = {"_", "_", ".", "-", "-", "=", "=", "#"};
  constexpr std::size_t levels = std::size(blocks);
  for (std::size_t look = first; look <= shown_; ++look) {
    const std::size_t level = history_[look % max_history] * (levels - 1) / maximum;
    std::fputs(has_blocks_ ? blocks[level] : letters[level], stdout);
  }
  std::printf("  peak %.1f MiB%s", mib(maximum), clear_line);
}

void Watch::print_bar(const Part& part, std::size_t bytes, std::size_t whole,
                      std::size_t width) const {
  static constexpr const char* eighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                            "\u258c", "\u258b", "\u258a", "\u2589"};
  constexpr std::size_t parts_of_cell = std::size(eighths);
  const std::size_t filled =
      whole == 0 ? 0 : (std::min(bytes, whole) * width * parts_of_cell + whole / 2) / whole;
  const std::size_t cells = filled / parts_of_cell;
  if (has_colours_) std::fputs(colours[static_cast<std::size_t>(part.use)], stdout);
  for (std::size_t i = 0; i < cells; ++i) std::fputs(has_blocks_ ? "\u2588" : "#", stdout);
  if (has_blocks_ && filled % parts_of_cell != 0) {
    std::fputs(eighths[filled % parts_of_cell], stdout);
  }
  if (has_colours_) std::fputs(plain, stdout);
}

void Watch::begin_page(const Account& account) {
  if (!has_begun()) std::fputs(begin_screen, stdout);
  history_[shown_ % max_history] = account.resident;
  std::printf("%s%s", go_home, has_colours_ ? bold : "");
  if (account.pid != 0) std::printf("Process %d (%s): ", account.pid, account.command);
  std::printf("%.1f MiB resident, tsmalloc's %.1f", mib(account.resident), mib(account.engine()));
  if (account.peak != 0) std::printf(", peak %.1f", mib(account.peak));
  std::printf("%s%s", has_colours_ ? plain : "", clear_line);
  print_history();
  std::printf("every %g s; press Ctrl-C to stop%s%s", seconds, clear_line, clear_line);
}

int Watch::end_page() {
  std::fputs(clear_rest, stdout);
  return std::fflush(stdout) == 0 ? 0 : errno;
}

int Watch::show_screen(const Report& report, const List<MapPiece>& map) {
  const Account& account = report.account;
  begin_page(account);
  if (has_map && account.has_engine) {
    constexpr std::size_t other_rows = 14;
    print_map(account, map, terminal_columns(),
              std::max(terminal_rows(), 2 * other_rows) - other_rows, has_colours_, clear_line);
    return end_page();
  }
  constexpr std::size_t text_columns = number_columns + meaning_columns;
  const std::size_t width = std::min(terminal_columns(), text_columns + max_bar_columns);
  std::printf("     MiB   change   so far%s", clear_line);
  for (const Part& part : parts) {
    const std::size_t bytes = account.*part.bytes;
    if (!account.has_engine && part.use != Use::outside) continue;
    std::printf("%8.1f%+9.1f%+9.1f  %-*s", mib(bytes), change(bytes, before_.*part.bytes),
                change(bytes, first_.*part.bytes), meaning_columns, part.meaning);
    if (width >= text_columns + min_bar_columns)
      print_bar(part, bytes, account.resident, width - text_columns);
    std::fputs(clear_line, stdout);
  }
  if (account.has_engine)
    std::printf("%s%zu thread%s, %zu heap%s, %zu of ended threads, %zu slab%s, %zu large block%s%s",
                clear_line, account.threads, plural(account.threads), account.heaps,
                plural(account.heaps), account.ended_heaps, account.slabs, plural(account.slabs),
                account.large_blocks, plural(account.large_blocks), clear_line);
  else
    std::printf("%sThe process %s%s", clear_line, report.reason.text, clear_line);
  return end_page();
}

int Watch::show_line(const Account& account) {
  constexpr std::size_t lines_per_head = 20;
  if (shown_ % lines_per_head == 0)
    std::fprintf(lines_, "%8s %10s %10s %10s %10s %10s %10s %10s\n", "MiB at", "resident",
                 "program", "in slabs", "waiting", "ended", "kept", "outside");
  const std::time_t now = std::time(nullptr);
  char at[16] = "";
  std::tm parts_of_now{};
  if (localtime_r(&now, &parts_of_now) != nullptr)
    std::strftime(at, sizeof at, "%H:%M:%S", &parts_of_now);
  std::fprintf(lines_, "%8s %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f\n", at,
               mib(account.resident), mib(account.program()), mib(account.in_slabs + account.bins),
               mib(account.waiting), mib(account.ended),
               mib(account.pages + account.ends + account.tables), mib(account.outside()));
  return std::fflush(lines_) == 0 ? 0 : errno;
}

}  // namespace ts
