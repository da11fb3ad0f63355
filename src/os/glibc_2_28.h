// Symbol-version shim for glibc 2.28. Included first (-include) in everything that is linked with a
// shared C library: binds each name that glibc has moved or changed since 2.28 to its older
// version, which newer releases still provide (docs/adr/0035-names-of-glibc-2.28.md).
// tests/glibc_2_28.py finds names that are missing here. Must not be compiled into archives, as
// libc.a has no symbol versions.
#pragma once

#include <features.h>

#ifdef __GLIBC__

// What 2.34 moved into libc keeps, there, the version that it had in libpthread and libdl.
#if defined(__x86_64__)
#define TS_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define TS_FIRST_GLIBC "GLIBC_2.17"
#elif defined(__riscv)
#define TS_FIRST_GLIBC "GLIBC_2.27"
#else
#error "which version of glibc was the first on this processor?"
#endif

#define TS_SYMBOL_VERSION(name, version) __asm__(".symver " #name "," #name "@" version)
TS_SYMBOL_VERSION(dladdr, TS_FIRST_GLIBC);
TS_SYMBOL_VERSION(dlerror, TS_FIRST_GLIBC);
#ifndef TS_HAS_DLOPEN  // of its own
TS_SYMBOL_VERSION(dlopen, TS_FIRST_GLIBC);
#endif
TS_SYMBOL_VERSION(dlsym, TS_FIRST_GLIBC);
TS_SYMBOL_VERSION(pthread_attr_setstack, TS_FIRST_GLIBC);
TS_SYMBOL_VERSION(pthread_attr_setstacksize, TS_FIRST_GLIBC);
#ifndef TS_HAS_PTHREAD_CREATE
TS_SYMBOL_VERSION(pthread_create, TS_FIRST_GLIBC);
#endif
TS_SYMBOL_VERSION(pthread_join, TS_FIRST_GLIBC);
TS_SYMBOL_VERSION(__pthread_key_create, TS_FIRST_GLIBC);
#ifndef TS_HAS_PTHREAD_KEY_CREATE
TS_SYMBOL_VERSION(pthread_key_create, TS_FIRST_GLIBC);
#endif
TS_SYMBOL_VERSION(pthread_getspecific, TS_FIRST_GLIBC);
TS_SYMBOL_VERSION(pthread_key_delete, TS_FIRST_GLIBC);
TS_SYMBOL_VERSION(pthread_setspecific, TS_FIRST_GLIBC);
// Null before 2.34 in a program without libpthread. (See os/c_library.cpp for the other weak names;
// a static program pulls this one out of libc.a through a reference that is not weak.)
#pragma weak __pthread_key_create
// libstdc++'s condition_variable::wait, which gcc 12 changed.
TS_SYMBOL_VERSION(_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "GLIBCXX_3.4.11");

#endif
