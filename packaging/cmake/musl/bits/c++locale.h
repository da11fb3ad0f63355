// Of libstdc++'s headers, the one that only glibc can have: its locales are glibc's. The libraries
// use none.
#pragma once
#pragma GCC system_header

#define _GLIBCXX_NUM_CATEGORIES 0

namespace std {
using __c_locale = int*;
}
