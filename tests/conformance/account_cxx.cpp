// The checks of the header tsmalloc/tsmalloc.h, compiled as C++.
#include "account.c"  // NOLINT(bugprone-suspicious-include)
