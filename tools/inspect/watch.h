// Accounts of a process, or of several, one after another: a screen on a terminal, else a line each.
#pragma once

#include <signal.h>

#include <cstdio>

#include "common/system.h"
#include "inspect/heap_map.h"

namespace ts {

class Watch {
 public:
  double seconds = 1;
  std::size_t times = ~std::size_t{0};
  bool is_json = false;
  bool has_map = false;

  // Waits, but for the first time. False if that was the last time, or a signal ended it.
  bool goes_on();
  bool has_begun() const { return shown_ != 0; }

  // For a command that this process starts: the terminal may be the command's as well. To be called
  // before; and by the child.
  void begin_with_command();
  void restore_signals() const;
  bool has_screen() const { return has_screen_; }
  // That ended it, and was taken; 0 if none was.
  int signal() const { return signal_; }
  // 0, or the number of an error in writing.
  int show(const Report& report, const List<MapPiece>& map);
  int show(Reports& reports);
  // Leaves the terminal as it was.
  void end() const;

 private:
  void begin_page(const Account& account);
  static int end_page();
  int show_screen(const Report& report, const List<MapPiece>& map);
  int show_line(const Account& account);
  void begin();

  void print_history() const;
  void print_bar(const Part& part, std::size_t bytes, std::size_t whole, std::size_t width) const;

  std::size_t shown_ = 0;
  Nanoseconds next_look_ = 0;  // when, by now_ns()
  std::FILE* lines_ = stdout;
  int signals_ = -1;  // a descriptor that is readable once a signal is to end this
  int signal_ = 0;
  sigset_t former_mask_{};
  bool has_screen_ = false;
  bool has_colours_ = false;
  bool has_blocks_ = false;  // the terminal's characters are those of Unicode
  static constexpr std::size_t most_history = 60;
  std::size_t history_[most_history] = {};  // resident bytes, by the number of the look
  Account first_;
  Account before_;
};

}  // namespace ts
