"""Addresses of real programs, built here: their functions, lines and inlined frames."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from profile_fixtures import File, Row, Site, Writer
from prompt import ran, script, write_files

from tsmlab.profile import binaries, symbols
from tsmlab.profile.binaries import Origin
from tsmlab.profile.model import Mapping, read
from tsmlab.profile.symbols import look_up

# A process ID that does not exist.
GONE = 4194999
PROGRAMS = [name for name in symbols.PROGRAMS if shutil.which(name)]

LIBRARY = """\
#include <execinfo.h>
static __attribute__((noinline)) int hidden(void **out, int most) {
  int n = backtrace(out, most); /* hidden */
  __asm__ volatile("" : : "r"(out) : "memory");
  return n;
}
int collect(void **out, int most) {
  int n = hidden(out, most); /* collect */
  __asm__ volatile("" : : "r"(out) : "memory");
  return n;
}
"""

PROGRAM = """\
#include <cstdio>
#include <cstring>
extern "C" int collect(void **out, int most);
namespace shop {
template <class T> struct Cart {
  __attribute__((noinline)) int fill(T *out, int most);
};
inline __attribute__((always_inline)) int inlined(void **out, int most) {
  int n = collect(out, most); // inlined
  asm volatile("" : : "r"(out) : "memory");
  return n;
}
template <class T> int Cart<T>::fill(T *out, int most) {
  int n = inlined(out, most); // fill
  asm volatile("" : : "r"(out) : "memory");
  return n;
}
}
int main() {
  void *stack[16];
  shop::Cart<void *> cart;
  int n = cart.fill(stack, 16); // main
  for (int i = 0; i < n; i++) std::printf("%p\\n", stack[i]);
  std::FILE *maps = std::fopen("/proc/self/maps", "r");
  char line[4096];
  while (std::fgets(line, sizeof line, maps))
    if (std::strstr(line, " r-xp ") != nullptr) std::fputs(line, stdout);
}
"""


def line_of(text, mark):
    found = (n for n, line in enumerate(text.splitlines(), 1) if re.search(f"/[/*] {mark}", line))
    return next(found)


def compiled(folder, *options, program_options=()):
    """The program and its library, in a folder; returns the program."""
    write_files(folder, {"collect.c": LIBRARY, "cart.cpp": PROGRAM})
    library, program = folder / "libcollect.so", folder / "cart"
    flags = ("-g", "-O1", "-Wl,--build-id", *options)
    ran("gcc", *flags, "-shared", "-fPIC", "-o", library, folder / "collect.c", status=0)
    found = ("-Wl,-rpath,$ORIGIN", f"-L{folder}", "-lcollect", *program_options)
    ran("g++", *flags, "-o", program, folder / "cart.cpp", *found, status=0)
    return program


def files_of(program):
    return program, program.with_name("libcollect.so")


def profile_of(program, out, **changes):
    """Runs the program; the stack that it prints becomes the stack of a profile. `changes` are
    build ids, by file name."""
    lines = ran(program, status=0).stdout.split("\n")
    stack = tuple(int(line, 16) for line in lines if line.startswith("0x"))
    files = []
    for line in lines:
        if match := re.fullmatch(r"(\w+)-(\w+) r-xp (\w+) \S+ \d+ +(/.*)", line):
            start, limit, offset = (int(match[n], 16) for n in (1, 2, 3))
            found = binaries.read(Path(match[4]))
            build_id = changes.get(Path(match[4]).stem, found.build_id if found else "")
            files.append(File(start, limit, match[4], offset, build_id))
    return taken_now([Row(Site(stack, 100, 10, 10), 10, 10)], files).write(out)


def taken_now(rows, files, pid=GONE):
    """A profile of a process that sampled from its start, taken just now."""
    comments = (f"pid {pid}", "command cart", "kind exit", "began_after_ms 0", "paused_ms 0")
    return Writer(rows, files, comments, time_nanos=time.time_ns(), duration_nanos=0)


def stack_in(profile, *where):
    contents = read(profile)
    found = look_up(contents, *where)
    return [frame for each in contents.rows[0].stack for frame in found.frames[each]], found.notes


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("cart"))


def use(monkeypatch, tmp_path, *names, **scripts):
    """PATH has only these programs, and scripts of the test."""
    folder = tmp_path / "only"
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name) or "")
    for name, does in scripts.items():
        script(folder / name, f"#!/bin/sh\n{does}\n")
    monkeypatch.setenv("PATH", str(folder))


def check_whole(profile, *where):
    """Functions, lines and the inlined frame, across the border to the library."""
    frames, notes = stack_in(profile, *where)
    named = [(f.function, f.line, Path(f.file).name, f.module) for f in frames[:5]]
    cart = "cart.cpp", "cart"
    assert named == [
        ("hidden", line_of(LIBRARY, "hidden"), "collect.c", "libcollect.so"),
        ("collect", line_of(LIBRARY, "collect"), "collect.c", "libcollect.so"),
        ("shop::inlined(void**, int)", line_of(PROGRAM, "inlined"), *cart),
        ("shop::Cart<void*>::fill(void**, int)", line_of(PROGRAM, "fill"), *cart),
        ("main", line_of(PROGRAM, "main"), *cart),
    ]
    return notes


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_and_inlined_frames(program, name, tmp_path, monkeypatch):
    profile = profile_of(program, tmp_path / "p.pb")
    use(monkeypatch, tmp_path, name, "c++filt")
    check_whole(profile)


@pytest.mark.parametrize(
    ("options", "of_program"),
    [((), ("-no-pie",)), (("-Wl,-z,noseparate-code",), ()), (("-gdwarf-4",), ())],
)
def test_other_layouts_of_the_file(options, of_program, tmp_path):
    program = compiled(tmp_path, *options, program_options=of_program)
    check_whole(profile_of(program, tmp_path / "p.pb"))


@pytest.mark.parametrize("name", [*PROGRAMS, None])
def test_stripped_files_have_the_names_that_they_export(name, tmp_path, monkeypatch):
    """And no others: `hidden` lies after another function, whose name it must not get."""
    program = compiled(tmp_path)
    ran("strip", *files_of(program), status=0)
    profile = profile_of(program, tmp_path / "p.pb")
    use(monkeypatch, tmp_path, *([name] if name else []))
    frames, notes = stack_in(profile)
    assert re.fullmatch(r"libcollect\.so\+0x[0-9a-f]+", frames[0].function)
    assert (frames[1].function, frames[1].line) == ("collect", 0)
    assert re.fullmatch(r"cart\+0x[0-9a-f]+", frames[2].function)
    assert any("apt install" in note for note in notes) == (name is None)


# Its note has the type number of a build id.
PROBE = r"""
__asm__(".pushsection .note.stapsdt, \"\", \"note\"\n.balign 4\n.4byte 8, 29, 3\n"
        ".asciz \"stapsdt\"\n.8byte 0, 0, 0\n.asciz \"a\", \"b\", \"\"\n"
        ".balign 4\n.popsection");
int main(void) { return 0; }
"""


def test_the_note_of_a_probe_is_no_build_id(tmp_path):
    source, program = tmp_path / "probe.c", tmp_path / "probe"
    source.write_text(PROBE)
    ran("gcc", "-Wl,--build-id", "-o", program, source, status=0)
    notes = ran("readelf", "-n", program, status=0).stdout
    assert "stapsdt" in notes
    assert binaries.read(program).build_id == re.search(r"Build ID: (\w+)", notes)[1]


def test_debug_files_by_build_id_and_a_file_that_is_gone(tmp_path):
    program = compiled(tmp_path)
    debug = tmp_path / "debug"
    for file in files_of(program):
        found = binaries.read(file)
        place = debug / ".build-id" / found.build_id[:2] / f"{found.build_id[2:]}.debug"
        place.parent.mkdir(parents=True, exist_ok=True)
        ran("objcopy", "--only-keep-debug", file, place, status=0)
    ran("strip", *files_of(program), status=0)
    profile = profile_of(program, tmp_path / "p.pb")
    check_whole(profile, debug)
    for file in files_of(program):
        file.unlink()
    check_whole(profile, debug)
    frames, notes = stack_in(profile)
    assert frames[2].function.startswith("cart+0x")
    assert any(str(program) in note for note in notes)


@pytest.mark.parametrize("folder", ["", ".debug"])
def test_debug_files_by_link(tmp_path, folder):
    program = compiled(tmp_path)
    (tmp_path / folder).mkdir(exist_ok=True)
    for file in files_of(program):
        place = tmp_path / folder / f"{file.name}.debug"
        ran("objcopy", "--only-keep-debug", file, place, status=0)
        ran("objcopy", "--strip-all", f"--add-gnu-debuglink={place}", file, status=0)
    profile = profile_of(program, tmp_path / "p.pb")
    nowhere = tmp_path / "none"
    check_whole(profile, nowhere)
    other = compiled(tmp_path / "other", "-O2")
    (tmp_path / folder / "cart.debug").write_bytes(other.read_bytes())
    frames, _ = stack_in(profile, nowhere)
    assert frames[2].function.startswith("cart+0x")


def test_another_build_is_not_used(program, tmp_path):
    profile = profile_of(program, tmp_path / "p.pb", cart="ab" * 20)
    frames, notes = stack_in(profile)
    assert frames[1].function == "collect"
    assert frames[2].function.startswith("cart+0x")
    (note,) = notes
    assert "abababababab" in note


@pytest.mark.parametrize(
    ("before", "after"), [("none", "none"), ("none", "sha1"), ("sha1", "none")]
)
def test_a_build_that_replaced_the_profiled_one_is_not_used(tmp_path, before, after):
    """Whichever of the two lacks a build id: a missing one matches nothing."""
    program = compiled(tmp_path, f"-Wl,--build-id={before}")
    old = program.stat()
    profile = profile_of(program, tmp_path / "p.pb")
    time.sleep(0.05)
    compiled(tmp_path, f"-Wl,--build-id={after}", "-O3")
    os.utime(program, ns=(old.st_atime_ns, old.st_mtime_ns))  # restoring the time hides nothing
    frames, notes = stack_in(profile)
    assert frames[1].function.startswith("libcollect.so+0x")
    assert frames[2].function.startswith("cart+0x")
    remedy = "-Wl,--build-id" if before == after else "not the build"
    assert sum(remedy in note for note in notes if "no symbols" in note) == 2


def test_names_that_no_build_id_verifies_are_marked(tmp_path):
    profile = profile_of(compiled(tmp_path, "-Wl,--build-id=none"), tmp_path / "p.pb")
    notes = check_whole(profile)
    assert sum("unverified" in note for note in notes) == 2
    assert any("-Wl,--build-id" in note for note in notes)


@pytest.mark.parametrize(
    ("written_at", "is_its_own"), [(0, True), (-3600, False), (3600, False), (None, False)]
)
def test_code_without_a_file(tmp_path, written_at, is_its_own):
    """The names from a JIT, unless they may be from an earlier or later process with the same ID,
    or it is unknown when this one began."""
    map_file = Path(f"/tmp/perf-{GONE}.map")
    map_file.write_text("1000 20 jitted(int)\nnonsense\n2000 zz\n")
    try:
        files = [File(0x1000, 0x3000, ""), File(0x7000, 0x8000, "[vdso]")]
        rows = [Row(Site((0x1010, 0x1030, 0x7005, 0x9000), 8, 1, 1), 1, 1)]
        writer = taken_now(rows, files)
        if written_at is None:
            writer.comments = writer.comments[:3]
        else:
            os.utime(map_file, (time.time() + written_at,) * 2)
        profile = writer.write(tmp_path / "p.pb")
        frames, notes = stack_in(profile)
    finally:
        map_file.unlink()
    first = "jitted(int)" if is_its_own else "[anon]+0x100f"
    rest = ["[anon]+0x102f", "[vdso]+0x7004", "[anon]+0x8fff"]
    assert [frame.function for frame in frames] == [first, *rest]
    assert any("another process" in note for note in notes) != is_its_own


def test_no_debuginfod_is_asked(program, tmp_path, monkeypatch):
    profile = profile_of(program, tmp_path / "p.pb")
    note = f'echo "${{DEBUGINFOD_URLS-unset}}" >> {tmp_path}/seen'
    real = shutil.which(PROGRAMS[0])
    use(monkeypatch, tmp_path, "c++filt", **{PROGRAMS[0]: f'{note}\nexec {real} "$@"'})
    monkeypatch.setenv("DEBUGINFOD_URLS", "https://localhost:1")
    check_whole(profile)
    assert set((tmp_path / "seen").read_text().split()) == {"unset"}


def test_program_that_fails_is_told(program, tmp_path, monkeypatch):
    profile = profile_of(program, tmp_path / "p.pb")
    use(monkeypatch, tmp_path, addr2line="exit 3")
    frames, notes = stack_in(profile)
    assert frames[1].function == "collect"
    assert any("addr2line" in note for note in notes)


def test_damaged_binaries_have_no_symbols(program, tmp_path):
    data, cut = program.read_bytes(), tmp_path / "cut"
    origin = Origin(read(taken_now([], []).write(tmp_path / "p.pb")))
    for content in (*(data[:n] for n in (0, 3, 64, 1000, len(data) // 2)), b"no ELF"):
        cut.write_bytes(content)
        found = binaries.find(Mapping(0x1000, 0x2000, 0, str(cut), ""), origin)
    assert str(cut) in found.note
