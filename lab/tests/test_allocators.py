"""Finding and selecting allocators."""

import contextlib
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from tsmlab import allocators, paths, system_libraries
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.system_libraries import Package

OWN = allocators.own_names()
SOME = [
    Allocator("lock-first", Path("/l/a.so"), "tsmalloc", "1"),
    Allocator("lock-best", Path("/l/b.so"), "tsmalloc", "1"),
    Allocator("nolock-best", Path("/l/c.so"), "tsmalloc", "1"),
    Allocator("glibc", None, "libc", "2.36"),
    Allocator("jemalloc", Path("/l/j.so"), "system", "5.3.0"),
    Allocator("mine", Path("/l/m.so"), "user", "?"),
]


@pytest.fixture(scope="module")
def library(build):
    return build("libown.so.c", "int own(void) { return 1; }\n", "-shared", "-fPIC")


@pytest.fixture
def build_folder(tmp_path, monkeypatch):
    (tmp_path / "build" / "lib").mkdir(parents=True)
    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path / "build"))
    return tmp_path / "build"


def names(found):
    return [allocator.name for allocator in found]


def test_built_libraries_come_first_in_fixed_order(build_folder, library):
    assert len(OWN) == len(set(OWN)) == 19
    assert OWN[:2] == ["tsmalloc", "lock-first"]
    assert {"rwlock-worst", "nolock-best", "arenas-first", "cached-best", "lockfree-worst"} < {*OWN}
    for name in reversed(OWN):
        (build_folder / "lib" / allocators.own_library(name)).write_bytes(library.read_bytes())
    found = allocators.discover(versions=False)
    assert names(found)[:20] == [*OWN, "glibc"]
    assert all(a.family == "tsmalloc" and a.summary for a in found[:19])
    with refused("glibc"):
        allocators.discover([f"glibc={library}"], versions=False)


def test_the_hardened_library_is_chosen_by_name_only(build_folder, library):
    unbuilt = allocators.discover(versions=False)
    assert names(unbuilt)[0] == "glibc"
    for name in ("tsmalloc-secure", "lock-best"):
        with refused("missing", remedy="TSMALLOC_BUILD_DIR"):
            allocators.select([name], unbuilt)
    for name in ("tsmalloc", "tsmalloc-secure"):
        (build_folder / "lib" / f"lib{name}.so").write_bytes(library.read_bytes())
    available = allocators.discover(versions=False)
    found = allocators.find("tsmalloc-secure", available)
    assert found.family == "hardened"
    assert names(allocators.select(["ours"], available)) == ["tsmalloc"]
    assert found not in allocators.select(["all"], available)


def test_glibc_has_a_version_and_no_file():
    glibc = allocators.glibc()
    assert (glibc.path, glibc.sha256, glibc.family) == (None, None, "libc")
    assert glibc.version == os.confstr("CS_GNU_LIBC_VERSION").removeprefix("glibc ")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (["glibc"], ["glibc"]),
        (["glibc,lock-*"], ["glibc", "lock-first", "lock-best"]),
        (["*-best", "glibc"], ["lock-best", "nolock-best", "glibc"]),
        (["ours"], ["lock-first", "lock-best", "nolock-best"]),
        (["system"], ["glibc", "jemalloc"]),
        (["mine", "all"], ["mine", "lock-first", "lock-best", "nolock-best", "glibc", "jemalloc"]),
        ([" glibc , glibc "], ["glibc"]),
    ],
)
def test_choice(spec, expected):
    assert names(allocators.select(spec, SOME)) == expected


def test_without_a_choice_no_teaching_allocator_takes_part():
    available = [Allocator("tsmalloc", Path("/e.so"), "tsmalloc", "1"), *SOME]
    default = ["tsmalloc", "glibc", "jemalloc", "mine"]
    assert names(allocators.select_or_default([], available)) == default
    assert names(allocators.select_or_default(["lock-*"], available)) == ["lock-first", "lock-best"]


def test_unknown_names():
    for spec, words in (
        (["our"], "Did you mean ours?"),
        (["zzz"], "`tsmalloc list`"),
        ([], "`tsmalloc list`"),
        ([" , "], "`tsmalloc list`"),
    ):
        with refused(remedy=words):
            allocators.select(spec, SOME)


@pytest.mark.parametrize(
    ("name", "package"), [("tbbmalloc", "libtbbmalloc2"), ("mimalloc", "libmimalloc2.0")]
)
def test_known_but_missing_allocator_names_its_package(monkeypatch, name, package):
    monkeypatch.setattr(system_libraries.shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setattr(system_libraries, "_output", lambda *_: "Package: libmimalloc2.0\n")
    with refused(remedy=f"sudo apt install {package}"):
        allocators.select([name], SOME)


def test_own_library_with_variables(library):
    mine = allocators.parse(f"mine={library}:A=1:B=x:y=z")
    assert (mine.name, mine.path, mine.family) == ("mine", library, "user")
    assert (mine.env, mine.version) == ({"A": "1", "B": "x", "y": "z"}, "?")
    assert mine.sha256 == hashlib.sha256(library.read_bytes()).hexdigest()
    assert system_libraries.version_from_library(library) is None


def test_a_known_allocator_with_variables():
    found = allocators.discover(
        ["eager=tsmalloc:TSMALLOC_PURGE_DELAY=0", "one=glibc:MALLOC_ARENA_MAX=1"], versions=False
    )
    engine, eager, one = (allocators.find(name, found) for name in ("tsmalloc", "eager", "one"))
    assert {eager.family, one.family} == {"user"}  # compared by default
    assert (eager.path, eager.env) == (engine.path, {"TSMALLOC_PURGE_DELAY": "0"})
    assert (one.path, one.env) == (None, {"MALLOC_ARENA_MAX": "1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=x.so", "cannot parse"),
        ("a b=x.so", "cannot parse"),
        ("ours=x.so", "is a group"),
        ("mine=/no/such.so", "/no/such.so is not a file"),
        ("mine=/etc/passwd", "/etc/passwd is not a shared library"),
        ("mine=/bin", "/bin is not a file"),
    ],
)
def test_unusable_own_libraries(text, words):
    with refused(words):
        allocators.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_an_allocator_or_a_clear_error(text):
    with contextlib.suppress(UserError):
        allocators.parse(text.replace("\0", ""))


@pytest.mark.parametrize("state", ["state", "with space"])
def test_path_that_cannot_be_preloaded_gets_a_link(library, tmp_path, monkeypatch, state):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / state))
    target = tmp_path / "my own: heap" / "lib own.so"
    target.parent.mkdir()
    target.write_bytes(library.read_bytes())
    path = paths.preloadable(target)
    assert not set(" :\t\n") & set(str(path))
    assert path.samefile(target)
    assert paths.preloadable(target) == path
    assert paths.preloadable(library) == library
    path.unlink()


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("2.0.9+ds-2", "2.0.9"),
        ("1:16.0.6-15~deb12u1", "16.0.6"),
        ("2.10-1", "2.10"),
        ("1.0", "1.0"),
        ("3.1.5+dfsg1-1", "3.1.5"),
    ],
)
def test_upstream_versions(version, upstream):
    assert Package("it", version).upstream_version == upstream


def test_installed_libraries_are_found_by_pattern(library, tmp_path, monkeypatch):
    """In the loader's cache, with nothing in the usual folders."""
    lines = []
    for name in ("jemalloc.so.2", "mimalloc.so.2", "mimalloc.so.3", "tcmalloc.so.4", "foo.so.1"):
        path = tmp_path / f"lib{name}"
        path.write_bytes(b"not a library" if "je" in name else library.read_bytes())
        lines.append(f"\t{path.name} (libc6,x86-64) => {path}")
    monkeypatch.setattr(system_libraries, "_output", lambda *_: "\n".join(lines))
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    found = {known.name: path.name for known, path in system_libraries.installed()}
    assert found == {"mimalloc": "libmimalloc.so.3", "tcmalloc": "libtcmalloc.so.4"}


@pytest.mark.parametrize("name", ["jemalloc", "mimalloc"])
def test_version_asked_from_the_library_itself(name):
    path = next((path for known, path in system_libraries.installed() if known.name == name), None)
    package = path and system_libraries.packages_of([path]).get(path)
    if package is None:
        pytest.skip(f"{name} is not installed from a package")
    assert system_libraries.version_from_library(path) == package.upstream_version


def test_other_architectures_are_not_loadable(library, tmp_path):
    other = tmp_path / "other.so"
    data = bytearray(library.read_bytes())
    data[18] ^= 0xFF
    other.write_bytes(data)
    assert system_libraries.is_loadable_library(library)
    assert not system_libraries.is_loadable_library(other)
    assert not system_libraries.is_loadable_library(tmp_path / "missing.so")
