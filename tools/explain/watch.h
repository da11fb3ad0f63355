// Accounts of one process, one after another: a screen on a terminal, else a line each.
#pragma once

#include "explain/report.h"

namespace ts {

class Watch {
 public:
  double seconds = 1;
  std::size_t times = ~std::size_t{0};
  bool is_json = false;

  // Waits, but for the first time. False if that was the last time, or a signal ended it.
  bool goes_on();
  bool has_begun() const { return shown_ != 0; }
  // 0, or the number of an error in writing.
  int show(const Process& process, const Account& account);
  // Leaves the terminal as it was.
  void end() const;

 private:
  int show_screen(const Process& process, const Account& account);
  int show_line(const Account& account);

  std::size_t shown_ = 0;
  bool has_screen_ = false;
  Account first_;
  Account before_;
};

}  // namespace ts
