"""Reading program files, with real programs built here, and resolving commands."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prompt import script as make_script
from refusals import refused

from tsmlab.elf import NotElf, read_facts
from tsmlab.programs import CannotStart, find_program, resolve, shebang

NO_DEADLINE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)


@pytest.fixture(scope="module")
def compile_c(build):
    """Compiles a C program that calls malloc, with the given options and text before main."""
    source = "int main(void) { return malloc(3) == NULL; }\n"
    return lambda *options, text="": build("program.c", f"{text}\n{source}", *options)


@pytest.fixture(scope="module")
def whole_program(compile_c):
    return compile_c()


def test_plain_program(whole_program):
    facts = read_facts(whole_program)
    assert Path(facts.interpreter).exists()
    assert "libc.so.6" in facts.needed
    assert (facts.go, facts.defined, facts.sanitizers) == (False, frozenset(), ())
    assert facts.bits == 64


JE = "void *je_malloc(size_t n) { return malloc(n); }"


@pytest.mark.parametrize(
    ("options", "text", "inside"),
    [
        ([], JE, ("jemalloc",)),
        (["-rdynamic", "-s"], JE, ("jemalloc",)),
        (["-s"], JE, ()),
        # Linkers store `malloc` inside `xmalloc`; only a symbol with the whole name counts.
        (["-s", "-rdynamic"], "void *mi_malloc_x(void) { return 0; }", ()),
        ([], "void *xmi_malloc(void) { return 0; } void *mi_malloc(void) { return 0; }",
         ("mimalloc",)),
        (["-s"], 'const char *volatile option = "TCMALLOC_RELEASE_RATE";', ("tcmalloc",)),
    ],
)  # fmt: skip
def test_allocators_inside_are_known_by_symbols_and_texts(compile_c, options, text, inside):
    assert read_facts(compile_c(*options, text=text)).allocators_inside == inside


@NO_DEADLINE
@example(at=133, junk=b"\x10", end=176)  # a segment table beyond the end of the file
@given(at=st.integers(0, 4000), junk=st.binary(min_size=1, max_size=8), end=st.integers(0, 20000))
def test_damaged_programs_are_read_or_refused(whole_program, tmp_path, at, junk, end):
    file = tmp_path / "damaged"
    data = bytearray(whole_program.read_bytes())
    data[at : at + len(junk)] = junk
    file.write_bytes(data if end > len(data) else data[:end])
    with contextlib.suppress(NotElf):
        read_facts(file)


def test_commands_are_found_by_path_and_on_path(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        make_script(tmp_path / name / "thing", "#!/bin/sh\n")
    (tmp_path / "a" / "thing").chmod(0o644)
    program = tmp_path / "b" / "thing"
    path = ":".join(str(tmp_path / name) for name in ("nothing", "a", "b", "c"))
    relative = os.path.relpath(program)
    for word, found in (("thing", program), (program, program), (relative, Path.cwd() / relative)):
        assert find_program(str(word), path) == found


def test_folder_on_path_that_is_closed(tmp_path, monkeypatch):
    """Like /root/bin for a user who kept root's PATH."""
    program = make_script(tmp_path / "thing", "#!/bin/sh\n")
    real_stat = Path.stat

    def stat(path, **options):
        if path.is_relative_to("/closed"):
            raise PermissionError(13, "Permission denied")
        return real_stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert find_program("thing", f"/closed:{tmp_path}") == program
    with pytest.raises(CannotStart, match="permission denied"):
        find_program("/closed/thing", "")


@pytest.mark.parametrize(
    "line",
    ["/bin/sh", " /bin/sh -e", "/usr/bin/env sh", "/usr/bin/env -S A=1 sh -e",
     "/usr/bin/env -S -i sh"],
)  # fmt: skip
def test_shebang_lines(tmp_path, line):
    script = make_script(tmp_path / "script", f"#!{line}\necho\n")
    of_a_script = make_script(tmp_path / "outer", f"#!{script}\n")
    resolved = resolve([str(of_a_script)], {"PATH": os.environ["PATH"]})
    assert resolved.scripts == (of_a_script, script)
    assert [path.name for path in resolved.chain[2:]] == ["sh"]


@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("nothing", None, "not-found", "nothing"),
        (".", None, "not-executable", "directory"),
        ("data", None, "not-executable", "data"),
        ("s", "#!\n", "interpreter", "#!"),
        ("s", "#!/no/such\n", "interpreter", "/no/such "),
        ("s", "#!/bin/sh\r\n", "interpreter", "CR LF"),
        ("s", "#!/usr/bin/env nosuchprog\n", "not-found", "nosuchprog"),
        ("loop", "#!{folder}/loop\n", "script-depth", "loop"),
    ],
)
def test_commands_that_cannot_start(tmp_path, name, content, code, words):
    (tmp_path / "data").write_text("text\n")
    if content:
        make_script(tmp_path / name, content.format(folder=tmp_path))
    with refused(words) as caught:
        resolve([str(tmp_path / name)], {"PATH": os.environ["PATH"]})
    assert caught.value.code == code


def test_nearest_names_are_proposed(tmp_path, monkeypatch):
    make_script(tmp_path / "frobnicate", "#!/bin/sh\n")
    with refused(remedy="Did you mean frobnicate?"):
        find_program("frobnicat", str(tmp_path))
    with refused(remedy=f"Did you mean {tmp_path}/frobnicate?"):
        find_program(str(tmp_path / "forbnicate"), "")
    make_script(tmp_path / "server", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    with refused(remedy="write ./server"):
        find_program("server", "/nonexistent")


@NO_DEADLINE
@given(st.binary(max_size=400))
def test_shebang_of_arbitrary_bytes(tmp_path, data):
    file = tmp_path / "file"
    file.write_bytes(data)
    line = shebang(file)
    assert (line is not None) == data.startswith(b"#!")
    assert line is None or "\n" not in line
