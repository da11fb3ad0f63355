// Displays repeated accounts of one process or several: a screen on a terminal, otherwise one line
// each.
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

  // Waits, except the first time. False if that was the last time, or a signal ended it.
  bool should_continue();
  bool has_begun() const { return shown_ != 0; }

  // For a command that this process starts, which may use the terminal too. Call before starting
  // it, and in the child.
  void begin_with_command();
  void restore_signals() const;
  bool has_screen() const { return has_screen_; }
  // The signal that ended it, which was consumed; 0 if none.
  int signal() const { return signal_; }
  // Returns 0, or the number of a write error.
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
  Nanoseconds next_look_ = 0;  // when, on now_ns()'s clock
  std::FILE* lines_ = stdout;
  int signals_ = -1;  // becomes readable when a signal is to end this
  int signal_ = 0;
  sigset_t former_mask_{};
  bool has_screen_ = false;
  bool has_colours_ = false;
  bool has_blocks_ = false;  // the terminal uses Unicode
  static constexpr std::size_t max_history = 60;
  std::size_t history_[max_history] = {};  // resident bytes, by sample number
  Account first_;
  Account before_;
};

}  // namespace ts
