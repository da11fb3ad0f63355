// The checks of the header tsmalloc/tsmalloc.h, compiled as C++.
#include "extension.c"  // NOLINT(bugprone-suspicious-include)
