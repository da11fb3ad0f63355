"""The doctor: every reason why an allocator cannot be preloaded, each with a program that has it,
compiled or made here. The proof runs programs under a real library.
"""

import json
import os
import re
import shutil
import stat
from pathlib import Path

import prompt
import pytest
from prompt import ran
from refusals import mentions, refused
from tiny_heap import TINY_HEAP

from tsmlab import doctor, system_libraries
from tsmlab.allocators import Allocator, glibc
from tsmlab.doctor import diagnose

NOBODY = 65534
MALLOC_TEXT = """
#include <stdlib.h>
#include <string.h>
BEFORE
int main(int argc, char **argv) {
  char *p = malloc(100);
  memset(p, argc, 100);
  char *volatile q = p;
  int first = q[0];
  free(q);
  return argc > 1 ? atoi(argv[1]) : first * 0;
}
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compiles a small C program that calls malloc and free; its argument is its exit status."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_program(name, *options, before="", compiler="gcc", text=MALLOC_TEXT):
        program = folder / name
        if not program.exists():
            source = folder / f"{name}.c"
            source.write_text(text.replace("BEFORE", before))
            ran(compiler, source, "-o", program, "-w", "-O1", *options, status=0)
        return program

    return compile_program


@pytest.fixture(scope="module")
def tiny_heap(build):
    """A real library to preload, independent of the project's own."""
    return Allocator("tiny", build("libtiny.so", "-shared", "-fPIC", text=TINY_HEAP), "user", "1")


def codes(diagnosis):
    return {finding.code: finding.severity for finding in diagnosis.findings}


def assert_fatal(code, *command, words="", remedy="", **more):
    """Of this one reason; returns the diagnosis."""
    diagnosis = diagnose(list(map(str, command)), **more)
    assert [f.code for f in diagnosis.fatal] == [code]
    found = finding(diagnosis, code)
    assert words in found.message
    assert remedy in found.remedy
    return diagnosis


def assert_exit_126(diagnosis):
    with refused() as caught:
        diagnosis.raise_if_fatal(as_shells=True)
    assert caught.value.exit_code == 126


def finding(diagnosis, code):
    return next(f for f in diagnosis.findings if f.code == code)


def test_plain_program_is_preloadable(build):
    diagnosis = diagnose([str(build("plain"))])
    assert codes(diagnosis) == {"dynamic": "ok"}
    assert diagnosis.preloadable
    assert not diagnosis.proofs


@pytest.mark.parametrize(
    ("code", "options", "before"),
    [
        ("static", ["-static"], ""),
        ("static-pie", ["-static-pie"], ""),
        ("sanitizer", ["-fsanitize=address"], ""),
        ("sanitizer", ["-fsanitize=thread"], ""),
        ("own-allocator", [], TINY_HEAP),
        ("own-allocator", ["-s", "-rdynamic"], TINY_HEAP),
    ],
)
def test_builds_without_preload(build, code, options, before):
    name = f"{code}{''.join(options)}{len(before)}"
    found = assert_fatal(code, build(name, *options, before=before))
    assert finding(found, code).remedy


def test_musl_program(build):
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is not installed")
    assert_fatal("musl", build("musl", compiler="musl-gcc"), remedy="docs/use.md")


@pytest.mark.parametrize("libc", ["libc.so", "libc.musl-x86_64.so.1"])
def test_library_for_musl(build, libc, tmp_path):
    # As linked by musl's compiler or on Alpine.
    (tmp_path / "none.c").touch()
    stand_in = tmp_path / libc
    options = ["-shared", "-nostdlib", f"-Wl,-soname,{libc}"]
    ran("cc", *options, "-o", stand_in, tmp_path / "none.c", status=0)
    options = ["-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", str(stand_in)]
    mine = Allocator("mine", build(f"of-{libc}", *options, text=TINY_HEAP), "user", "1")
    found = assert_fatal("wrong-libc", build("plain"), words="musl", allocators=[mine])
    assert not found.proofs


def test_clang_sanitizer_links_its_runtime_inside(build):
    clang = shutil.which("clang") or shutil.which("clang-16")
    if clang is None:
        pytest.skip("clang is not installed")
    try:
        program = build("clang-asan", "-fsanitize=address", compiler=clang)
    except AssertionError:
        pytest.skip("clang has no sanitizer runtimes here")
    assert_fatal("sanitizer", program)


def test_go_programs(tmp_path):
    """Go's own tool has no C parts."""
    if (go := shutil.which("go")) is None:
        pytest.skip("go is not installed")
    assert codes(diagnose([go])) == {"go": "fatal"}
    source, program = tmp_path / "main.go", tmp_path / "program"
    source.write_text('package main\nimport "C"\nfunc main() { println(1) }\n')
    environment = os.environ | {"CGO_ENABLED": "1", "GOFLAGS": "", "GO111MODULE": "off"}
    ran(go, "build", "-o", program, source, env=environment, status=0)
    diagnosis = diagnose([str(program)])
    assert codes(diagnosis) == {"dynamic": "ok", "go": "warning"}
    assert diagnosis.preloadable


def test_program_for_another_machine(build, tmp_path):
    data = bytearray(build("plain").read_bytes())
    data[18:20] = (0xB7).to_bytes(2, "little")  # EM_AARCH64
    foreign = tmp_path / "foreign"
    foreign.write_bytes(data)
    foreign.chmod(0o755)
    assert_fatal("architecture", foreign)


def test_what_is_no_program_or_not_there_ends_the_diagnosis(build, tmp_path):
    program = build("loaderless", "-Wl,--dynamic-linker=/no/such/ld.so")
    assert_exit_126(assert_fatal("loader-missing", program, words="/no/such/ld.so"))
    file = prompt.script(tmp_path / "file", "echo without a first line\n")
    assert_exit_126(assert_fatal("not-elf", file))
    assert assert_fatal("not-found", "/no/such/program").resolved is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize(("code", "bit"), [("setuid", stat.S_ISUID), ("setgid", stat.S_ISGID)])
def test_programs_that_change_rights(build, tmp_path, code, bit):
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("set-id bits have no effect in the folder for temporary files")
    program = shutil.copy(build("plain"), tmp_path / "privileged")
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o755 | bit)
    assert_fatal(code, program, words="AT_SECURE")


def test_file_capabilities(build, tmp_path, monkeypatch):
    program = shutil.copy(build("plain"), tmp_path / "capable")
    program.chmod(0o4755)
    assert diagnose([str(program)]).preloadable, "one's own set-user-ID bit changes nothing"
    monkeypatch.setattr(os, "getxattr", lambda *_: b"\1")
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    monkeypatch.setattr(doctor.stat, "S_ISUID", 0)  # the copy belongs to another user now
    assert_fatal("capabilities", program)


def test_allocators_that_are_linked_or_have_names_of_their_own(build):
    program = build("prefixed", before="void *je_malloc(size_t n) { return malloc(n); }")
    diagnosis = diagnose([str(program)])
    assert codes(diagnosis) == {"dynamic": "ok", "own-allocator": "warning"}
    assert "jemalloc" in finding(diagnosis, "own-allocator").message
    library = build("libmimalloc.so.2", "-shared", "-fPIC", text=TINY_HEAP)
    program = build("linked", str(library), "-Wl,--no-as-needed", f"-Wl,-rpath,{library.parent}")
    diagnosis = diagnose([str(program)])
    assert codes(diagnosis)["linked-allocator"] == "warning"
    assert diagnosis.preloadable
    # A script that starts it does not reveal it; the counted run does.
    diagnosis = diagnose(["sh", "-c", f"{program}; true"], allocators=[glibc()])
    message = finding(diagnosis, "linked-allocator").message
    mentions(message, "linked", "libmimalloc.so.2", "`glibc`")


def test_program_that_asks_for_usable_sizes(build):
    asking = MALLOC_TEXT.replace("free(q);", "q[0] = malloc_usable_size(q); free(q);")
    diagnosis = diagnose([str(build("capacity", text=asking))])
    assert codes(diagnosis) == {"dynamic": "ok", "usable-size": "warning"}
    assert diagnosis.preloadable
    assert "malloc_good_size" in finding(diagnosis, "usable-size").remedy


def test_script_is_followed(tmp_path):
    script = prompt.script(tmp_path / "script", "#!/bin/sh\nexit 0\n")
    diagnosis = diagnose([str(script)])
    assert codes(diagnosis) == {"script": "note", "dynamic": "ok"}
    assert f"{script} -> /bin/sh" in finding(diagnosis, "script").message


@pytest.mark.parametrize(
    ("name", "variable", "code"),
    [
        ("python3.11", ("PYTHONMALLOC", "malloc"), "python"),
        ("php8.2", ("USE_ZEND_ALLOC", "0"), "php"),
        ("node", None, "javascript"),
        ("java", None, "java"),
    ],
)
def test_runtimes_with_heaps_of_their_own(build, tmp_path, monkeypatch, name, variable, code):
    program = shutil.copy(build("plain"), tmp_path / name)
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    diagnosis = diagnose([str(program)])
    assert codes(diagnosis) == {"dynamic": "ok", code: "note"}
    if variable is not None:
        assert "=".join(variable) in finding(diagnosis, code).remedy
        monkeypatch.setenv(*variable)
        assert codes(diagnose([str(program)])) == {"dynamic": "ok"}


def test_preload_that_is_there_already(build, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    diagnosis = diagnose([str(build("plain"))])
    assert codes(diagnosis)["already-preloaded"] == "warning"


def test_proof_counts_calls_also_of_children(build, tiny_heap):
    diagnosis = diagnose([str(build("plain"))], allocators=[tiny_heap, glibc()])
    assert diagnosis.preloadable
    under_tiny, under_glibc = diagnosis.proofs
    (counts,) = under_tiny.processes
    assert (counts.malloc, counts.free) == (1, 1)
    assert counts.bytes_requested == 100
    assert Path(counts.provider).samefile(str(tiny_heap.path))
    assert Path(under_glibc.processes[0].provider).name == "libc.so.6"
    program = str(build("plain"))
    diagnosis = diagnose(["sh", "-c", f"{program}; {program}; true"], allocators=[tiny_heap])
    seen = [Path(counts.program).name for counts in diagnosis.proofs[0].processes]
    assert seen.count("plain") == 2


def test_an_end_by_status_or_by_time_is_no_obstacle(build, tiny_heap):
    diagnosis = diagnose([str(build("plain")), "3"], allocators=[tiny_heap])
    assert diagnosis.preloadable
    assert codes(diagnosis) == {"dynamic": "ok", "ended": "note", "proven": "ok"}
    assert "exit 3" in finding(diagnosis, "ended").message
    diagnosis = diagnose(["sleep", "60"], allocators=[tiny_heap], timeout_seconds=0.5)
    assert diagnosis.preloadable
    assert codes(diagnosis)["ended"] == "note"
    assert diagnosis.proofs[0].measurement.timed_out


def test_crash_is_an_obstacle(build, tiny_heap):
    crasher = build("crasher", text=MALLOC_TEXT.replace("int first", "raise(11); int first"))
    assert_fatal("crashed", crasher, words="SIGSEGV", allocators=[tiny_heap])


def test_programs_past_the_allocator_are_found_out(build, tiny_heap):
    idle = build("idle", text="int main(void) { return 0; }")
    diagnosis = diagnose([str(idle)], allocators=[tiny_heap])
    assert codes(diagnosis) == {"dynamic": "ok", "not-intercepted": "fatal"}
    # env -i execs a program without LD_PRELOAD: env's own calls prove nothing about the program.
    diagnosis = diagnose(["env", "-i", "/bin/ls"], allocators=[tiny_heap])
    assert "ls" not in {Path(counts.program).name for counts in diagnosis.proofs[0].processes}


def test_library_past_the_allocator_is_named(build, tiny_heap):
    """It can be found by the program's RUNPATH, too, which dlopen takes from its caller."""
    library = build("libdeep.so", "-shared", "-fPIC", text="int unused;")
    loads = 'if (dlopen("libdeep.so", RTLD_NOW | RTLD_DEEPBIND) == NULL) return 9;'
    program = build(
        "deep",
        "-D_GNU_SOURCE",
        f"-Wl,-rpath,{library.parent}",
        before="#include <dlfcn.h>",
        text=MALLOC_TEXT.replace("int first", f"{loads} int first"),
    )
    diagnosis = diagnose([str(program)], allocators=[tiny_heap])
    assert codes(diagnosis)["deep-binding"] == "warning"
    assert "libdeep.so" in finding(diagnosis, "deep-binding").message
    assert "ended" not in codes(diagnosis)


def test_library_that_serves_nothing_is_found_out(build):
    empty = build("libempty.so", "-shared", "-fPIC", text="int unused;")
    mine = [Allocator("empty", empty, "user", "1")]
    assert_fatal("served-by-other", build("plain"), words="libc.so.6", allocators=mine)


def test_runtime_behind_a_script_is_noted(build, tmp_path, tiny_heap):
    program = shutil.copy(build("plain"), tmp_path / "node")
    diagnosis = diagnose(["sh", "-c", f"{program}; true"], allocators=[tiny_heap])
    assert codes(diagnosis)["javascript"] == "note"


def test_every_installed_allocator_is_proven(build):
    installed = [
        Allocator(known.name, path, "system", "?") for known, path in system_libraries.installed()
    ]
    if not installed:
        pytest.skip("no other allocator is installed")
    diagnosis = diagnose([str(build("plain"))], allocators=installed)
    assert not diagnosis.fatal
    assert [proof.calls > 0 for proof in diagnosis.proofs] == [True] * len(installed)


@pytest.fixture
def command(build):
    return lambda *words: prompt.run_alone("doctor", *words, build("plain"))


def test_command_proves(command, tiny_heap):
    shown = command("--allocator", f"mine={tiny_heap.path}", "--allocator", "glibc")
    assert "mine, glibc" in shown.stderr
    assert re.search(r"mine .*\b2 calls", shown.stdout)
    assert str(tiny_heap.path) in shown.stdout
    assert shown.stdout.endswith("with proof.\n")


def test_a_server_is_announced_and_stopped_and_proven_with_the_engine():
    shown = prompt.run_alone("doctor", "--timeout", "1s", "sleep", "60")
    assert re.search("tsmalloc.* 1.00 s", shown.stderr)
    assert "calls under tsmalloc:" in shown.stdout
    assert shown.stdout.endswith("with proof.\n")


def test_command_without_a_run_and_on_a_hopeless_program(build, command):
    assert "--no-run" in command("--no-run", "--timeout", "5s").stdout
    shown = prompt.run_alone("doctor", str(build("static-static0", "-static")), status=2)
    assert "CANNOT" in shown.stdout


def test_command_as_json(build, command, tiny_heap):
    shown = command("--json", "--allocator", f"mine={tiny_heap.path}")
    document = json.loads(shown.stdout)
    assert document["schema"] == "tsmalloc-doctor/1"
    assert (document["program"], document["preloadable"]) == (str(build("plain")), True)
    (proof,) = document["proofs"]
    assert (proof["allocator"], proof["calls"], proof["outcome"]) == ("mine", 2, "ok")
    assert proof["processes"][0]["calls"]["malloc"] == 1
