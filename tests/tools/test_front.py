"""An installation's front door: run, lib, and the way into the lab."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prompt import ran, script

from tsmlab import __version__, cli, paths

LAB = [sys.executable, "-m", "tsmlab"]


def soname(name):
    """The component with the run-time library."""
    dynamic = ran("readelf", "-d", paths.library(f"lib{name}.so"), status=0)
    return re.search(r"\(SONAME\).*\[(.*)\]", dynamic.stdout)[1]


def cached(variable):
    """The value of a variable in the build."""
    text = (paths.build_dir() / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(rf"^{variable}:\w+=(.*)$", text, re.MULTILINE)[1]


class Prefix:
    """An installation with the components runtime and tools."""

    def __init__(self, root):
        self.root = root
        self.front = root / cached("CMAKE_INSTALL_BINDIR") / "tsmalloc"
        self.libraries = root / cached("CMAKE_INSTALL_LIBDIR")
        self.engine = self.libraries / soname("tsmalloc")
        self.secure = self.libraries / soname("tsmalloc-secure")
        self.front.parent.mkdir(parents=True)
        self.libraries.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.tool("tsmalloc"), self.front)
        self.engine.symlink_to(paths.library("libtsmalloc.so"))
        self.secure.symlink_to(paths.library("libtsmalloc-secure.so"))

    def add_home(self, launcher):
        """The lab's home, with one teaching heap."""
        home = self.libraries / "tsmalloc"
        (home / "lib").mkdir(parents=True)
        name = "libtsmalloc-lock-best.so"
        (home / "lib" / name).symlink_to(paths.library(name))
        script(home / "tsmalloc-lab", launcher)

    def __call__(self, *arguments, **environment):
        return execute([self.front, *arguments], **environment)


def execute(command, **environment):
    inherited = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    return ran(*command, env=inherited | environment, stdin=subprocess.DEVNULL)


def expect_line(ended, *parts):
    """A line on standard error names all of these: what is at fault, and the remedy."""
    assert re.fullmatch(r"tsmalloc: [^\n]+\n", ended.stderr), ended.stderr
    for part in parts:
        assert str(part) in ended.stderr


@pytest.fixture
def prefix(tmp_path):
    return Prefix(tmp_path / "prefix")


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ((), "tsmalloc"),
        (("tsmalloc",), "tsmalloc"),
        (("secure",), "tsmalloc-secure"),
        (("tsmalloc-secure",), "tsmalloc-secure"),
        (("lock-best",), "tsmalloc-lock-best"),
    ],
)
def test_run_preloads_what_lib_prints(prefix, name, library):
    prefix.add_home("#!/bin/false\n")
    printed = prefix("lib", *name).stdout
    assert Path(printed.strip()).samefile(paths.library(f"lib{library}.so"))
    assert prefix("run", *name, "--", "sh", "-c", 'echo "$LD_PRELOAD"').stdout == printed
    maps = prefix("run", *name, "--", "cat", "/proc/self/maps").stdout
    mapped = set(re.findall(r"\S*/(libtsmalloc\S*)", maps))
    assert mapped == {paths.library(f"lib{library}.so").resolve().name}


def test_a_prefix_may_be_moved_and_linked_to(prefix, tmp_path):
    moved = prefix.root.rename(tmp_path / "elsewhere")
    link = tmp_path / "command"
    link.symlink_to(moved / prefix.front.relative_to(prefix.root))
    shown = execute([link, "lib"])
    assert shown.stdout == f"{moved / prefix.engine.relative_to(prefix.root)}\n"


@pytest.mark.parametrize("letter", [" ", ":"])
def test_a_path_that_cannot_be_preloaded(tmp_path, letter):
    prefix = Prefix(tmp_path / f"a{letter}b")
    for verb in (("run", "--", "true"), ("lib",)):
        refused = prefix(*verb)
        assert (refused.returncode, refused.stdout) == (2, "")
        expect_line(refused, prefix.libraries, "LD_PRELOAD", "move the installation")


# Commands for both, run in a directory with the files of `strange`, and their exit statuses.
BOTH = [
    (["run", "--", "sh", "-c", 'echo "$0|$*"; exit 7', "zero", "--", "-h", "a b"], 7),
    (["run", "secure", "sh", "-c", 'echo "$KEY|$LD_PRELOAD"; kill -TERM $$'], -signal.SIGTERM),
    (["run", "--", "no-such-program"], 127),
    (["run", "--", "data"], 126),
    (["run", "--", "./of-nothing"], 126),
    (["run", "--", "./empty"], 126),
    (["run", "--"], 1),
]


def strange(folder):
    """Files that cannot be executed."""
    (folder / "folder").mkdir()
    (folder / "data").write_text("data")
    (folder / "empty").touch(0o755)
    script(folder / "of-nothing", "#!/no/such/interpreter\n")


def test_run_and_lib_are_the_labs(prefix, tmp_path, monkeypatch):
    strange(tmp_path)
    monkeypatch.chdir(tmp_path)
    keep = paths.library("libtsmalloc-lock-best.so")  # an earlier preload, which stays after ours
    environment = {"KEY": "value", "LD_PRELOAD": str(keep), "PATH": f"{os.environ['PATH']}:."}
    for arguments, status in BOTH:
        front = prefix(*arguments, **environment)
        lab = execute([*LAB, *arguments], **environment)
        assert front.returncode == lab.returncode == status, arguments
        # The same library has a linker name in the prefix, and another in the build.
        said = [
            re.sub(r"\S*/libtsmalloc(-secure)?\.so\S*?(?=:)", "OURS", text)
            for text in (front.stdout, lab.stdout)
        ]
        assert said[0] == said[1], arguments
        assert bool(front.stderr) == bool(lab.stderr), arguments
        if front.stderr:
            assert front.stderr.startswith("tsmalloc: ")
            assert front.stderr.count("\n") == 1
    assert said


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("./no-such-program", 127, "No such file"),
        ("./data", 126, "chmod +x"),
        ("./folder", 126, "is a directory"),
        ("./data/program", 127, "Not a directory"),
        ("./empty", 126, "names its interpreter"),
        ("", 127, "is empty"),
    ],
)
def test_programs_that_cannot_be_started(prefix, tmp_path, monkeypatch, program, status, said):
    strange(tmp_path)
    monkeypatch.chdir(tmp_path)
    refused = prefix("run", "--", program)
    assert (refused.returncode, refused.stdout) == (status, "")
    assert refused.stderr.startswith("tsmalloc: ")
    assert said in refused.stderr


def test_programs_that_a_preload_does_not_reach(prefix, tmp_path):
    shown = prefix("run", "--", prefix.front, "--version")  # is itself static
    assert (shown.returncode, shown.stdout) == (0, f"tsmalloc, version {__version__}\n")
    expect_line(shown, "warning", prefix.front, "static")
    if os.getuid() != 0:
        pytest.skip("only root can make a program of another user")
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    os.chown(program, 65534, 65534)
    for mode, text in ((0o4755, "setuid"), (0o2755, "setgid"), (0o2644 | 0o100, "")):
        program.chmod(mode)
        said = prefix("run", "--", program).stderr
        assert text in said
        assert bool(said) == bool(text)


def test_every_other_verb_is_the_labs(prefix):
    """The same holds for options that the front door does not know."""
    others = (
        ["compare", "--rounds", "3", "--", "a b", ""],
        ["run", "--allocator", "x=/y", "x", "true"],
        ["run", "jemalloc", "true"],
        ["run", "../count-best", "true"],
        ["lib", "jemalloc"],
        ["lib", "--bogus"],
        ["run", "--help"],
        ["lib", "-h"],
        ["--help"],
    )
    for arguments in others[-3:]:
        assert prefix(*arguments).stdout.startswith("Usage: tsmalloc run [NAME] -- PROGRAM")
    unknown = prefix("--bogus")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    expect_line(unknown, "--bogus", "tsmalloc --help")
    for arguments in others[:-3]:
        refused = prefix(*arguments)
        is_option = arguments[0] != "compare" and arguments[1].startswith("-")
        assert (refused.returncode, refused.stdout) == (1 if is_option else 2, "")
        expect_line(refused, "tsmalloc-lab_*.deb", "tsmalloc-*.whl")
    prefix.add_home('#!/bin/sh\nfor word; do echo "<$word>"; done; exit 9\n')
    profiles = (
        ["profile", "--by", "line", "--", "a b"],
        ["profile", "4711"],
        ["profile", "--help"],
    )
    for arguments in (*others, *profiles, []):
        shown = prefix(*arguments)
        assert shown.stdout == "".join(f"<{word}>\n" for word in arguments)
        assert (shown.returncode, shown.stderr) == (9, "")
    taken = prefix("profile", "take", "4194999")
    assert (taken.returncode, taken.stdout) == (2, "")
    assert "no process 4194999" in taken.stderr


def test_what_is_missing_is_named(prefix):
    prefix.secure.unlink()
    refused = prefix("run", "secure", "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    expect_line(refused, prefix.secure, "libtsmalloc0")
    prefix.add_home("#!/no/such/python\n")
    expect_line(prefix("compare", "true"), "/tsmalloc-lab: ", "tsmalloc-lab_*.deb")
    shutil.rmtree(prefix.libraries)
    expect_line(prefix("lib"), prefix.engine.name, "libtsmalloc0")
    assert prefix("--help").returncode == 0


def test_help_and_version(prefix):
    shown = prefix("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("Usage: tsmalloc run [NAME] -- PROGRAM")
    nothing = prefix()
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, "", shown.stdout)
    assert prefix("-V").stdout == execute([*LAB, "-V"]).stdout
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [prefix.front, "lib"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"cannot write" in done.stderr


def test_the_manual_page_has_every_verb():
    page = (paths.repository_root() / "docs/man/tsmalloc.1").read_text(encoding="utf-8")
    for verb in cli.VERBS:
        assert f"\n.TP\n.B {verb.name}\n{verb.summary}\n" in page
