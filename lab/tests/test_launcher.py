"""The launcher and its set-up: first use, second use, and errors in between. The tests set up a
copy of the tree with an empty list of packages and a fake `cmake` that records its calls; one test
uses the real tree.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prompt import processes, ran, script, wait_until, write_files
from refusals import mentions

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 120

# Records its arguments, and creates the files that a build would. FAKE_CMAKE_FAIL makes it fail,
# FAKE_CMAKE_HANG makes a build hang once it has begun.
FAKE_CMAKE = """#!/bin/sh
echo "$*" >> "$FAKE_CMAKE_CALLS"
if [ "$1" = --version ]; then echo "cmake version ${FAKE_CMAKE_VERSION:-3.31.0}"; exit; fi
if [ -n "$FAKE_CMAKE_FAIL" ]; then echo "error: something is wrong"; exit 7; fi
mkdir -p build/release/lib build/release/bin
case "$1" in
  --build)
    echo "[ 50%] Building CXX object"
    if [ -n "$FAKE_CMAKE_HANG" ]; then touch build/hanging; exec sleep 60; fi
    touch build/release/bin/measure ;;
  *) echo "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" > build/release/CMakeCache.txt
     case "$*" in
       *WERROR=OFF*) echo TSMALLOC_WERROR:BOOL=OFF >> build/release/CMakeCache.txt ;;
     esac ;;
esac
"""
# Replaces the lab: shows that it was started, with which arguments and input.
FAKE_LAB = """
import signal, sys
print("lab", *sys.argv[1:], sep="|")
if "mask" in sys.argv:
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
if "read" in sys.argv:
    print(sys.stdin.read())
"""


@dataclass(frozen=True)
class Tree:
    """A copy of the checkout with a cheap set-up, and a way to use it."""

    root: Path
    calls: Path
    environment: Mapping[str, str]

    def start(self, *arguments, hang=False):
        """hang: once the build has begun, which this waits for."""
        environment = {**self.environment, **({"FAKE_CMAKE_HANG": "1"} if hang else {})}
        pipes = {"stdin": subprocess.DEVNULL} | dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        command = [self.root / "tsmalloc", *arguments]
        process = subprocess.Popen(command, env=environment, text=True, **pipes)
        if hang:
            wait_until((self.root / "build" / "hanging").exists)
        return process

    def use(self, *arguments, by=None, cwd=None, typed="", status=0, **environment):
        env = {**self.environment, **environment}
        command = (by or self.root / "tsmalloc", *arguments)
        return ran(*command, env=env, cwd=cwd, input=typed, status=status)

    def says(self, *arguments, **more):
        """Checks that the lab gets the arguments, and that nothing is set up."""
        use = self.use(*arguments, **more)
        assert (use.stdout, use.stderr) == (f"lab|{'|'.join(arguments)}\n", "")

    def recovers(self):
        """Checks that the next use sets up what is missing, and returns its calls of cmake."""
        self.cmake_calls()
        assert self.use("compare", "after").stdout == "lab|compare|after\n"
        return self.cmake_calls()

    def cmake_calls(self):
        """The calls of cmake since the last query, except for its version."""
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.write_text("")
        return [call for call in calls if call != "--version"]

    def write(self, name, text):
        (self.root / name).write_text(text)


REQUIREMENTS, SOURCE = "lab/requirements.txt", "src/heap.cpp"


def make_tree(folder):
    root, tools, calls = folder / "tree", folder / "tools", folder / "calls"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dev" / "setup", root / "dev" / "setup", ignore=ignored)
    shutil.copy2(ROOT / "tsmalloc", root)
    lab = {"lab/tsmlab/__init__.py": "", "lab/tsmlab/__main__.py": FAKE_LAB}
    write_files(root, {REQUIREMENTS: "# nothing\n", SOURCE: "int x;\n"} | lab)
    tools.mkdir()
    script(tools / "cmake", FAKE_CMAKE)
    dropped = {"TSMALLOC_BUILD_DIR", "CXX", "CC", "CMAKE_GENERATOR", "LD_PRELOAD"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    path = os.pathsep.join([str(tools), kept["PATH"]])
    return Tree(root, calls, {**kept, "PATH": path, "FAKE_CMAKE_CALLS": str(calls)})


@pytest.fixture(scope="module")
def first_use(tmp_path_factory):
    """A tree after its first use, with the output. Must not be changed: take a copy."""
    tree = make_tree(tmp_path_factory.mktemp("first"))
    return tree, tree.use("compare", "two three", "--four")


@pytest.fixture
def copy(first_use, tmp_path):
    """Makes named copies of the finished tree. A copy has moved, so it is rebuilt."""

    finished, _ = first_use

    def make(name="tree"):
        root = tmp_path / name
        packages = next(finished.root.glob(".venv/lib/python*/site-packages"))

        # The packages, a thousand files that do not change, are shared.
        def shared(folder, names):
            return [n for n in names if Path(folder) == packages and (packages / n).is_dir()]

        shutil.copytree(finished.root, root, symlinks=True, ignore=shared)
        for package in filter(Path.is_dir, packages.iterdir()):
            (root / packages.relative_to(finished.root) / package.name).symlink_to(package)
        calls = tmp_path / "calls"
        return Tree(root, calls, {**finished.environment, "FAKE_CMAKE_CALLS": str(calls)})

    return make


@pytest.fixture
def tree(copy):
    tree = copy()
    tree.use("compare")
    tree.cmake_calls()
    return tree


@pytest.fixture
def bare_tools(tmp_path):
    """Makes a PATH with the basic tools that every system has, plus the named ones."""

    def make(*names):
        folder = tmp_path / "bare"
        folder.mkdir()
        for name in ("sh", "readlink", "dirname", "mkdir", "touch", *names):
            (folder / name).symlink_to(shutil.which(name))
        return str(folder)

    return make


def test_first_use_sets_up_and_second_is_silent(first_use):
    tree, first = first_use
    assert first.stdout == "lab|compare|two three|--four\n"
    mentions(first.stderr, ".venv", "build/release")
    configure, build = tree.cmake_calls()
    assert configure.startswith("--preset release --fresh")
    assert "-DTSMALLOC_TESTS=OFF" in configure
    assert build.startswith("--build --preset release -j")
    assert build.endswith(" --target part_compare")
    tree.says("compare", "again")
    assert tree.cmake_calls() == []
    # An interrupt waits until the lab can answer it.
    assert tree.use("list", "mask").stdout == "lab|list|mask\nTrue\n"


@pytest.mark.parametrize(
    ("arguments", "targets"),
    [
        (["run", "x", "--", "bench"], "part_compare"),
        (["experiment", "list"], "part_compare part_experiment"),
        (["bench", "hot-pair"], "part_bench part_compare"),
        (["bench", "--traces"], "part_bench part_compare part_traces"),
        (["analyze", "trace"], "part_compare part_traces"),
        *((words, None) for words in ([], ["--version"], ["report", "x"], ["no-verb", "compare"])),
    ],
)
def test_each_verb_builds_what_it_needs(copy, bare_tools, arguments, targets):
    tree = copy()
    if targets:
        tree.use(*arguments)
        assert tree.cmake_calls()[1].endswith(f" --target {targets}")
    assert tree.use(*arguments, **({} if targets else {"PATH": bare_tools()})).stderr == ""
    assert tree.cmake_calls() == []


def test_parts_add_up_until_a_source_changes(tree):
    tree.use("record")
    tree.use("experiment")
    tree.cmake_calls()
    for verb in ("compare", "replay", "experiment"):
        tree.says(verb)
    tree.write(SOURCE, "int y;\n")
    for verb, targets in (("compare", "part_compare"), ("replay", "part_compare part_traces")):
        tree.use(verb)
        assert tree.cmake_calls()[1].endswith(f" --target {targets}")


def test_make_builds_every_part_that_is_defined(tree):
    ran(sys.executable, tree.root / "dev" / "setup", "lab", env=tree.environment, status=0)
    defined = re.findall(r"add_custom_target\((part_\w+)", (ROOT / "CMakeLists.txt").read_text())
    assert tree.cmake_calls()[1].endswith(f" --target {' '.join(sorted(set(defined)))}")
    tree.says("replay")


@pytest.mark.long
def test_packages_and_build_are_set_up_at_once(tmp_path):
    tree = make_tree(tmp_path)
    use = tree.start("compare", hang=True)
    wait_until((tree.root / ".venv" / ".tsmalloc-stamp").exists)
    use.send_signal(signal.SIGINT)
    _, errors = use.communicate(timeout=TIMEOUT_SECONDS)
    assert use.returncode == 130
    assert re.search(r"\.venv.*: done", errors)
    assert re.search(r"build/release.*: stopped", errors)


@pytest.mark.long
def test_failed_packages_stop_the_build(tmp_path):
    tree = make_tree(tmp_path)
    tree.write(REQUIREMENTS, "not a requirement\n")
    use = tree.use("compare", FAKE_CMAKE_HANG="1", status=1)
    assert re.search(r"\.venv.* failed", use.stderr)
    assert re.search(r"build/release.*: stopped", use.stderr)
    assert sleepers(tree.root) == []
    tree.write(REQUIREMENTS, "# nothing\n")
    assert "--clean-first" not in tree.recovers()[1]


@pytest.mark.long
def test_concurrent_first_uses_set_up_once(tmp_path):
    tree = make_tree(tmp_path)
    uses = [tree.start("compare", str(number)) for number in range(3)]
    for number, use in enumerate(uses):
        output, errors = use.communicate(timeout=TIMEOUT_SECONDS)
        assert use.returncode == 0, errors
        assert output == f"lab|compare|{number}\n"
    assert len(tree.cmake_calls()) == 2


def test_input_reaches_the_lab_through_a_set_up(copy):
    assert copy().use("list", "read", typed="for the lab").stdout == "lab|list|read\nfor the lab\n"


def older(root):
    stamp = root / ".venv" / ".tsmalloc-stamp"
    stamp.write_text(stamp.read_text().replace("python 3.", "python 3.0"))


@pytest.mark.parametrize(
    ("change", "builds"),
    [
        (lambda root: (root / "src" / "new.cpp").touch(), True),
        (lambda root: (root / SOURCE).unlink(), True),
        (lambda root: shutil.rmtree(root / "build" / "release" / "lib"), True),
        (lambda root: (root / REQUIREMENTS).write_text("# something else\n"), False),
        pytest.param(older, False, marks=pytest.mark.long),
        pytest.param(
            lambda root: (root / ".venv" / "bin" / "python").unlink(), False, marks=pytest.mark.long
        ),
    ],
)
def test_what_has_changed_is_set_up_again(tree, change, builds):
    change(tree.root)
    assert (".venv" in tree.use("compare").stderr) != builds
    calls = tree.cmake_calls()
    if builds:  # as it was configured, without starting over
        assert calls[0] == "--preset release -DTSMALLOC_WERROR=OFF"
        assert "--clean-first" not in calls[1]
    assert len(calls) == (2 if builds else 0)
    tree.says("compare")


@pytest.mark.parametrize(
    ("number", "status", "clean"),
    [(signal.SIGINT, 130, False), (signal.SIGTERM, 130, False), (signal.SIGKILL, -9, True)],
)
def test_interrupted_build_recovers(tree, number, status, clean):
    tree.write(SOURCE, "int z;\n")
    use = tree.start("compare", hang=True)
    use.send_signal(number)
    if number == signal.SIGKILL:
        kill_sleepers(tree.root)
    use.communicate(timeout=TIMEOUT_SECONDS)
    assert use.returncode == status
    wait_until(lambda: not sleepers(tree.root))  # a killed process may take a moment to disappear
    assert ("--clean-first" in tree.recovers()[1]) == clean


def test_what_is_built_runs_while_other_parts_are_built(tree):
    building = tree.start("replay", hang=True)
    tree.says("compare", "during")
    building.send_signal(signal.SIGINT)
    building.communicate(timeout=TIMEOUT_SECONDS)
    tree.says("compare", "after")
    tree.cmake_calls()
    tree.use("replay")
    assert tree.cmake_calls()[1].endswith(" --target part_compare part_traces")


def test_killed_set_up_holds_the_lock_while_its_build_runs(tree):
    tree.write(SOURCE, "int w;\n")
    killed = tree.start("compare", hang=True)
    killed.kill()
    second = tree.start("compare", "second")
    assert "waiting" in second.stderr.readline()
    kill_sleepers(tree.root)
    output, _ = second.communicate(timeout=TIMEOUT_SECONDS)
    assert output == "lab|compare|second\n"
    killed.communicate(timeout=TIMEOUT_SECONDS)


def sleepers(root):
    """The processes that work in a tree: leftovers of a fake build."""
    return processes(
        lambda folder: (
            (folder / "cwd").readlink() == root and (folder / "comm").read_text() == "sleep\n"
        )
    )


def kill_sleepers(root):
    """Ends the fake build, which becomes a sleeper a moment after it announces that it hangs."""
    wait_until(lambda: sleepers(root))
    for pid in sleepers(root):
        os.kill(pid, signal.SIGKILL)


def test_works_from_anywhere_by_any_name(copy, tmp_path):
    tree = copy("a path with spaces, 'quotes' and \u00fcmlauts")
    (tmp_path / "bin").symlink_to(tree.root / "tsmalloc")
    (tmp_path / "ts").symlink_to("bin")
    assert tree.use("compare", by=tmp_path / "ts", cwd=Path("/")).stdout == "lab|compare\n"
    words = ("sh", "./tsmalloc", "compare")
    relative = ran(*words, cwd=tree.root, env=tree.environment, status=0)
    assert (relative.stdout, relative.stderr) == ("lab|compare\n", "")


def test_moved_tree_keeps_its_packages_and_is_configured_afresh(tree, tmp_path):
    moved = replace(tree, root=tree.root.rename(tmp_path / "moved"))
    use = moved.use("compare", "here")
    assert use.stdout == "lab|compare|here\n"
    assert ".venv" not in use.stderr
    assert "--fresh" in moved.cmake_calls()[0]


def test_user_environment_does_not_leak_into_the_set_up(tree, tmp_path):
    write_files(tmp_path, {"tsmlab/__main__.py": "raise SystemExit('the wrong lab')"})
    tree.says("compare", cwd=tmp_path, PYTHONPATH=str(tmp_path), PYTHONHOME="/nonexistent")


def test_build_folder_of_the_users_own_needs_no_build(copy):
    tree = copy()
    tree.says("compare", TSMALLOC_BUILD_DIR="/elsewhere")
    assert tree.cmake_calls() == []


def test_failed_build_names_log_and_remedy(tree):
    tree.write(SOURCE, "wrong\n")
    use = tree.use("compare", FAKE_CMAKE_FAIL="1", status=1)
    log = tree.root / "build" / "setup-build.log"
    mentions(use.stderr, "| error: something is wrong", str(log))
    assert "error: something is wrong" in log.read_text()
    assert use.stdout == ""
    tree.recovers()


def test_failed_download_tells_of_the_network(tree):
    tree.write(REQUIREMENTS, f"nowhere==1.0 --hash=sha256:{'0' * 64}\n")
    offline = {"INDEX_URL": "http://127.0.0.1:9/", "RETRIES": "0", "CONFIG_FILE": "/dev/null"}
    offline = {f"PIP_{name}": value for name, value in offline.items()}
    use = tree.use("compare", **offline, status=1)
    mentions(use.stderr, "network", "build/setup-packages.log")


def test_all_missing_tools_in_one_line(copy, bare_tools):
    tree, tools = copy(), bare_tools()
    use = tree.use("compare", PATH=tools, status=1)
    assert "  sudo apt install cmake make g++\n" in use.stderr
    # Without any Python interpreter, the launcher itself prints the remedy.
    shutil.rmtree(tree.root / ".venv")
    launcher = (tree.root / "tsmalloc").read_text().replace("/usr/bin/python3", "/nonexistent")
    tree.write("tsmalloc", launcher)
    use = tree.use("compare", PATH=tools, status=1)
    assert "  sudo apt install python3 python3-venv cmake make g++\n" in use.stderr


@pytest.mark.parametrize(("verb", "named"), [("compare", False), ("record", True)])
def test_zstd_is_asked_for_by_traces_only(copy, verb, named):
    tree = copy()
    # The set-up's own message if no headers are found.
    steps = (tree.root / "dev" / "setup" / "steps.py").read_text()
    headers = r'"/usr/(local/)?include/zstd.h"'
    tree.write("dev/setup/steps.py", re.sub(headers, '"/nonexistent"', steps))
    use = tree.use(verb, status=1 if named else 0)
    assert ("  sudo apt install libzstd-dev\n" in use.stderr) == named
    assert (tree.cmake_calls() == []) == named


def test_real_tree_is_configured_without_zstd(tmp_path):
    without = ["-DTSMALLOC_TESTS=OFF", "-DTSMALLOC_ZSTD=", "-DTSMALLOC_ZSTD_HEADERS="]
    ran("cmake", "--preset", "release", "-B", tmp_path, *without, cwd=ROOT, status=0)
    targets, traces = (
        ran("cmake", "--build", tmp_path, "--target", target, timeout=600)
        for target in ("help", "part_traces")
    )
    assert re.search(r"\bpart_compare\b", targets.stdout)
    assert not re.search(r"(?m)(^|\s)(trace|record)(:|$)", targets.stdout)
    assert traces.returncode != 0
    assert "sudo apt install libzstd-dev" in traces.stdout


OLD_GCC = "g++ (Debian 8.3.0-6) 8.3.0\nCopyright (C) 2018 Free Software Foundation, Inc."
OLD_CLANG = "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu"


@pytest.mark.parametrize(
    ("said", "version"), [(OLD_GCC, "g++ 8.3.0"), (OLD_CLANG, "clang++ 14.0.6")]
)
def test_old_and_missing_compilers_are_refused(copy, bare_tools, tmp_path, said, version):
    tree, folder = copy(), tmp_path / "old"
    folder.mkdir()
    # Fake compilers that only print their versions.
    chosen = script(tmp_path / "c++", f"#!/bin/sh\necho '{said}'\n")
    script(folder / "g++", f"#!/bin/sh\necho '{OLD_GCC}'\n")
    use = tree.use("compare", CXX=f"{chosen} -pipe", status=1)
    (line,) = [line for line in use.stderr.splitlines() if "CXX=" in line]
    mentions(line, version, "unset CXX", "g++ 12, clang++ 16")
    use = tree.use("compare", PATH=f"{folder}:{bare_tools('make')}", status=1)
    mentions(use.stderr, "apt install cmake\n", "g++ 12, clang++ 16")
    use = tree.use("compare", CXX="/nonexistent/g++", status=1)
    assert re.search(r"CXX=/nonexistent/g\+\+ .*unset CXX", use.stderr)
    use = tree.use("compare", FAKE_CMAKE_VERSION="3.18.4", status=1)
    assert re.search(r"cmake .*3\.25", use.stderr)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_folder_without_write_permission(tmp_path):
    tree = make_tree(tmp_path)
    tree.root.chmod(0o555)
    use = tree.use("compare", status=None)
    tree.root.chmod(0o755)
    assert (use.returncode, "cannot write" in use.stderr) == (1, True)


@pytest.fixture
def real_stamps():
    stamps = [ROOT / ".venv" / ".tsmalloc-stamp", ROOT / "build" / "release" / ".tsmalloc-stamp"]
    if not all(stamp.exists() for stamp in stamps):
        pytest.fail("this tree is not set up: run `make test`, or ./tsmalloc once")
    return {stamp: stamp.stat().st_mtime_ns for stamp in stamps}


def test_real_tree_is_set_up_and_stays_so(real_stamps):
    for _ in range(2):
        use = ran(ROOT / "tsmalloc", "--version", status=0)
        assert use.stdout.startswith("tsmalloc, version ")
    assert use.stderr == ""
    assert {stamp: stamp.stat().st_mtime_ns for stamp in real_stamps} == real_stamps
