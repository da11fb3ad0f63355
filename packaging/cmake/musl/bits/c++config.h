// libstdc++'s headers as they are configured for glibc, without what musl lacks (../../musl.cmake):
// the question how old glibc is, and the parts of <atomic> that wait and that bring in <string>.
// The libraries use none of them.
#pragma once
#pragma GCC system_header

#define __GLIBC_PREREQ(major, minor) 0
#include_next <bits/c++config.h>
#undef _GLIBCXX_HAS_GTHREADS
#undef _GLIBCXX_HAVE_LINUX_FUTEX
