"""C programs that tests compile on demand; used here and in tests/tools."""

import subprocess
from pathlib import Path

import pytest

USUAL_HEADERS = """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
"""


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """build(name, source, *flags) compiles C (or C++, by the name) and returns the path of the
    result.

    The source need not include USUAL_HEADERS.
    """
    folder = tmp_path_factory.mktemp("programs")
    headers = folder / "usual.h"
    headers.write_text(USUAL_HEADERS)
    done: dict[tuple[str, ...], Path] = {}

    def compile_once(name, source, *flags):
        key = (name, source, *flags)
        if key not in done:
            code = folder / f"{len(done)}-{name}"
            code.write_text(source)
            output = code.with_suffix("")
            compiler = "c++" if name.endswith(".cpp") else "cc"
            # Compilers know malloc, and would remove calls with unused results.
            options = ["-O1", "-fno-builtin", "-include", str(headers), *flags]
            command = [compiler, *options, str(code), "-o", str(output)]
            finished = subprocess.run(command, capture_output=True, text=True, check=False)
            assert finished.returncode == 0, finished.stderr
            done[key] = output
        return done[key]

    return compile_once


# Runs a command with one system call refused by the kernel: REFUSED.
REFUSES = """
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char** arguments) {
  struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REFUSED, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {4, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 99;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 99;
  execvp(arguments[1], arguments + 1);
  return count;
}
"""
