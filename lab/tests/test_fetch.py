"""`tsmalloc fetch`: from a crate to an allocator that every verb finds, and its errors.

The crate is made here and served by a fake cargo, so that no network is needed; only the last test
uses the real one.
"""

import hashlib
import os
import shutil

import prompt
import pytest
from prompt import write_files
from refusals import mentions, refused
from tiny_heap import TINY_HEAP

from tsmlab import allocators, cli, fetch, fetched, paths, records
from tsmlab.errors import UserError

CARGO = """#!/bin/sh
[ "$*" = "vendor --quiet vendor" ] || exit 9
[ -f src/lib.rs ] || exit 9
if [ -n "$CARGO_FAILS" ]; then echo "error: something" >&2; echo "  $CARGO_FAILS" >&2; exit 101; fi
mkdir vendor && cp -r "$CRATE" vendor/tiny-sys
version=$(sed -n 's/^tiny-sys = "=\\(.*\\)"$/\\1/p' Cargo.toml)
cd vendor/tiny-sys || exit 9
printf '[package]\\nname = "tiny-sys"\\nversion = "%s"\\n' "$version+meta" > Cargo.toml
printf '{"files":{},"package":"%s"}' "$CRATE_SHA256" > .cargo-checksum.json
"""
PINNED = hashlib.sha256(b"tiny").hexdigest()
TABLE = f"""
[[peer]]
name = "tiny"
summary = "it frees nothing"
crate = "tiny-sys"
version = "1.2.0"
sha256 = "{PINNED}"
holds = "7.0"
tools = ["cc"]
steps = ["cc -shared -fPIC -DMETA={{metadata}} -o libtiny-real.so {{crate}}/tiny.c",
         "ln -s libtiny-real.so libtiny.so"]
library = "libtiny.so"
environment = {{ TINY = "1" }}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(*arguments, status=0) returns the verb's out and err, in a world with the crate tiny-sys
    and a cargo that knows no other."""
    write_files(tmp_path, {"crate/tiny.c": TINY_HEAP, "fetch.toml": TABLE, "bin/cargo": CARGO})
    (tmp_path / "bin" / "cargo").chmod(0o755)
    monkeypatch.setattr(fetch, "TABLE", tmp_path / "fetch.toml")
    for name, value in (
        ("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}"),
        ("CRATE", str(tmp_path / "crate")),
        ("CRATE_SHA256", PINNED),
        ("XDG_CACHE_HOME", str(tmp_path / "cache")),
    ):
        monkeypatch.setenv(name, value)
    return prompt.in_process("fetch", capfd)


def in_cache():
    return sorted(path.name for path in fetched.cache_dir().glob("*"))


def test_what_was_fetched_is_found_by_all(run, capfd):
    out, err = run("tiny")
    library = fetched.cache_dir() / "tiny-7.0" / "libtiny.so"
    assert out == f"tiny-7.0  {library}\n"
    downloading, building = err.splitlines()
    assert (downloading[-5:], building[-10:]) == ("1.2.0", "1.2.0+meta")
    assert in_cache() == ["tiny-7.0"]
    assert library.is_file()
    assert not library.is_symlink()
    available = allocators.discover()
    found = allocators.find("tiny-7.0", available)
    assert (found.family, found.version, found.path) == ("fetched", "7.0", library)
    assert found.env == {"TINY": "1"}
    assert found in allocators.select(["all"], available)
    assert allocators.select(["tiny-*"], available) == [found]
    assert found in allocators.select(["system"], available)
    assert cli.main(["lib", "tiny-7.0"]) == 0
    assert capfd.readouterr().out == f"{library}\n"
    assert "tiny-7.0" in run().out


def test_what_is_there_is_left_alone_unless_it_is_forced(run):
    run("tiny")
    (manifest, library), *_ = fetched.present()
    before = library.stat().st_ino
    out, err = run("tiny")
    assert library.stat().st_ino == before
    assert "tiny-7.0" in err
    assert out.endswith(f"{library}\n")
    assert run("tiny", "--force", "-q") == (f"{library}:TINY=1\n", "")
    assert library.stat().st_ino != before
    assert in_cache() == ["tiny-7.0"]
    assert manifest.crate_sha256 == PINNED


def test_archives_not_pinned_are_refused(run, monkeypatch):
    monkeypatch.setenv("CRATE_SHA256", "0" * 64)
    out, err = run("tiny", status=1)
    assert out == ""
    mentions(err, "tiny-sys 1.2.0", "checksum", "000")
    assert in_cache() == []
    # Of another version, its checksum is the registry's, and the library does not report a version.
    run("tiny", "--version", "1.10.0")
    run("tiny", "--version", "1.9.0")
    assert [manifest.version for manifest, _ in fetched.present()] == ["1.9.0", "1.10.0"]


@pytest.mark.parametrize(
    ("said", "message", "remedy"),
    [
        ("Could not resolve host", "Could not resolve host", "network"),
        ("failed to select a version for `x`", "has no version 1.2.0", "--version"),
        ("failed to select a version for `x`\nthis is offline mode", "offline mode", "network"),
    ],
)
def test_what_cargo_cannot_do_is_one_line(run, monkeypatch, said, message, remedy):
    monkeypatch.setenv("CARGO_FAILS", said)
    first, second = run("tiny", "-q", status=1).err.splitlines()
    assert (message in first, remedy in second) == (True, True)
    assert in_cache() == []


@pytest.mark.parametrize("tool", ["cargo", "cc"])
def test_a_missing_tool_is_named(run, tmp_path, monkeypatch, tool):
    only = tmp_path / "only"
    only.mkdir()
    for name in {"cargo", "cc"} - {tool}:
        (only / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(only))
    err = run("tiny", "-q", status=1).err
    mentions(err, f"tsmalloc: {tool} ", "sudo apt install")


def test_a_build_that_fails_leaves_its_log_and_nothing_else(run, tmp_path):
    code = tmp_path / "crate" / "tiny.c"
    code.write_text("int nothing;\n")
    assert "tiny-7.0" in run("tiny", "-q", status=1).err
    assert in_cache() == []
    text = TABLE.replace('library = "libtiny.so"', 'library = "libother.so"')
    (tmp_path / "fetch.toml").write_text(text)
    assert "libother.so" in run("tiny", "-q", status=1).err
    code.write_text("int broken(\n")
    err = run("tiny", "-q", status=1).err
    log = fetched.cache_dir() / "tiny.log"
    mentions(err, "tiny (cc: exit 1)", str(log))
    assert "$ cc -shared" in log.read_text()
    assert in_cache() == ["tiny.log"]


def test_a_cache_that_cannot_be_written_is_named(run, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    err = run("tiny", "-q", status=1).err
    mentions(err, "/proc/nowhere/tsmalloc/allocators", "XDG_CACHE_HOME")


def test_a_damaged_folder_is_passed_over_and_fetched_again(run):
    run("tiny")
    manifest = fetched.cache_dir() / "tiny-7.0" / fetched.MANIFEST
    for damage in ("{", '{"schema": "x"}', ""):
        manifest.write_text(damage)
        assert list(fetched.present()) == []
        assert all(each.family != "fetched" for each in allocators.discover(versions=False))
        run("tiny")
        assert len(list(fetched.present())) == 1
    (library,) = (library for _, library in fetched.present())
    library.write_bytes(b"no library")
    assert list(fetched.present()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tinny"], "no recipe for 'tinny'"),
        (["tiny", "--version", '1"; x = "2'], "is not a version"),
        (["tiny", "--version", ""], "is not a version"),
        (["tiny", "tiny", "--version", "1.2.0"], "one crate only"),
    ],
)
def test_bad_input_is_one_clear_line(run, words, message):
    out, err = run(*words, status=1)
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 2


def test_every_recipe_is_pinned_and_named_where_it_helps():
    known = fetch.peers()
    assert tuple(peer.name for peer in known) == allocators.FETCHABLE
    for peer in known:
        assert len(bytes.fromhex(peer.sha256)) == 32
        assert set(peer.tools) <= set(fetch.REMEDIES)
    with refused(remedy="To build it: tsmalloc fetch rpmalloc"):
        allocators.find("rpmalloc", [allocators.glibc()])


def test_a_real_crate(tmp_path, monkeypatch):
    """rpmalloc is the smallest. Skipped without a registry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peer = fetch.peer_of("rpmalloc")
    try:
        manifest, library = fetch.fetch(peer, None, False, lambda _: None)
    except UserError as error:
        if "could not be downloaded" in error.message or "cargo" in error.message:
            pytest.skip(error.message)
        raise
    assert library == paths.cache_dir() / "allocators" / "rpmalloc-1.4.3" / "librpmalloc.so"
    assert manifest.library_sha256 == hashlib.sha256(library.read_bytes()).hexdigest()
    kept = (library.parent / fetched.MANIFEST).read_text()
    assert records.from_json(fetched.Manifest, fetched.SCHEMA, kept, "it", "") == manifest
