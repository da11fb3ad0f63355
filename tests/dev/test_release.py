"""dev/release on a small repository: which steps fail, and what a complete run leaves behind."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from prompt import merged, script
from refusals import mentions

ROOT = Path(__file__).resolve().parents[2]
HEADER = "include/tsmalloc/tsmalloc.h"
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2030-01-02\n\n- It is faster.\n"
# Its build fails if the file `no-part` exists; the product contains the time passed to the build.
PART = """#!/bin/sh
test ! -e no-part || { echo "part: no tool: sudo apt install tool" >&2; exit 2; }
echo "$SOURCE_DATE_EPOCH" >"$2/part-0.2.0"
"""


def macros(*numbers):
    """A header with the version."""
    names = ("MAJOR", "MINOR", "PATCH")
    return "".join(
        f"#define TSMALLOC_VERSION_{name} {number}\n"
        for name, number in zip(names, numbers, strict=False)
    )


def run(checkout, *command, typed=""):
    return merged(*command, cwd=checkout, input=typed)


def release(checkout, *arguments, typed="", status=0):
    """The output of dev/release, which must end with this status."""
    command = (sys.executable, checkout / "dev/release", *arguments)
    ended, said = run(checkout, *command, typed=typed)
    assert ended == status, said
    return said


def commit(checkout):
    run(checkout, "git", "add", "--all")
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    status, said = run(checkout, "git", *name, "commit", "--quiet", "--message", "a change")
    assert status == 0, said


@pytest.fixture
def checkout(tmp_path):
    """Ready for release 0.2.0; its `make` records its arguments, and fails if asked to."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "packaging/part").mkdir(parents=True)
    for name in ("dev/release", "dev/version.py", "dev/package", "packaging/sbom.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    script(tmp_path / "packaging/part/build", PART)
    (tmp_path / "packaging/cmake/abi").mkdir(parents=True)
    script(tmp_path / "packaging/cmake/abi/check", "#!/bin/sh\ntest ! -e no-check\n")
    (tmp_path / "dev/generate").write_text("")
    (tmp_path / ".gitignore").write_text("__pycache__/\n/build/\n/dist/\n")
    (tmp_path / HEADER).parent.mkdir(parents=True)
    (tmp_path / HEADER).write_text(macros(0, 2, 0))
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "Makefile").write_text("test-all coverage fuzz: ; @echo made $@; test ! -e no-$@\n")
    run(tmp_path, "git", "init", "--quiet")
    run(tmp_path, "git", "config", "user.name", "t")
    run(tmp_path, "git", "config", "user.email", "t@example.org")
    commit(tmp_path)
    return tmp_path


def test_a_dry_run_says_what_is_next_and_does_nothing(checkout):
    said = release(checkout, "--check")
    assert "FAIL" not in said
    assert "next every test of every build passes: make test-all" in said
    assert "made" not in said
    assert run(checkout, "git", "tag") == (0, "")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (HEADER, macros(0, 3, 0), "no entries under `## 0.3.0"),
        ("CHANGELOG.md", CHANGELOG.replace("- It is faster.\n", ""), "no entries under `## 0.2.0"),
        ("CHANGELOG.md", CHANGELOG.replace("ased\n", "ased\n\n- And smaller.\n"), "`Unreleased`"),
        (HEADER, macros(0, 2), "`#define TSMALLOC_VERSION_PATCH NUMBER` is missing"),
        ("dev/generate", "import sys\nsys.exit('use.md is stale')\n", "use.md is stale"),
    ],
)
def test_a_quick_step_that_fails_is_named(checkout, file, text, words):
    (checkout / file).write_text(text)
    commit(checkout)
    assert words in release(checkout, "--check", status=1)


def test_neither_changed_files_nor_a_tag_twice(checkout):
    (checkout / "new").write_text("")
    said = release(checkout, status=1)
    assert "?? new" in said
    assert "made" not in said
    run(checkout, "git", "tag", "v0.2.0")
    commit(checkout)
    assert "the tag v0.2.0 exists" in release(checkout, status=1)


def test_a_walk_to_the_end_tags(checkout):
    said = release(checkout, typed="y\n" * 4)
    assert (checkout / "dist/SHA256SUMS").is_file()
    assert [said.count(f"made {verb}\n") for verb in ("test-all", "coverage", "fuzz")] == [1, 1, 1]
    assert "It is faster." in run(checkout, "git", "tag", "--list", "-n9", "v0.2.0")[1]


@pytest.mark.parametrize("typed", ["", "n\n", "y\ny\nn\n", "y\ny\ny\nn\n"])
def test_without_every_yes_there_is_no_tag(checkout, typed):
    release(checkout, typed=typed, status=1)
    assert run(checkout, "git", "tag") == (0, "")


def test_tests_that_fail_end_the_walk(checkout):
    (checkout / "no-coverage").write_text("")
    commit(checkout)
    said = release(checkout, typed="y\n" * 4, status=1)
    assert "made coverage" in said
    assert "made fuzz" not in said


def test_the_artefacts_are_built_with_checksums_and_a_bill_of_materials(checkout):
    for _ in range(2):  # what a previous run left there is not an artefact
        release(checkout, "--build")
        (checkout / "dist/stale").write_text("")
    time = run(checkout, "git", "log", "-1", "--format=%ct")[1]
    assert (checkout / "dist/part-0.2.0").read_text() == time
    status, said = run(checkout / "dist", "sha256sum", "--check", "SHA256SUMS")
    assert (status, said) == (0, "part-0.2.0: OK\ntsmalloc-0.2.0.cdx.json: OK\n")
    listed = json.loads((checkout / "dist/tsmalloc-0.2.0.cdx.json").read_text())["components"]
    assert [component["name"] for component in listed] == ["part-0.2.0"]
    assert listed[0]["hashes"][0]["content"] in (checkout / "dist/SHA256SUMS").read_text()
    assert run(checkout, "git", "tag") == (0, "")


@pytest.mark.parametrize(
    ("fails", "words"),
    [("check", ["FAIL abi"]), ("part", ["FAIL part", "sudo apt install tool"])],
)
def test_what_fails_ends_the_build_by_name_and_the_folder_is_not_called_whole(
    checkout, fails, words
):
    (checkout / f"no-{fails}").write_text("")
    commit(checkout)
    mentions(release(checkout, "--build", status=1), *words)
    assert not (checkout / "dist/SHA256SUMS").exists()


def test_a_snapshot_is_of_any_tree_and_says_so(checkout):
    (checkout / "CHANGELOG.md").write_text("")
    release(checkout, "--build", status=1)
    said = release(checkout, "--build", "--snapshot", "--output", "here")
    assert "a snapshot, not a release" in said
    assert (checkout / "here/SHA256SUMS").is_file()
    assert not (checkout / "dist").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tag"], "unrecognized arguments: --tag"),
        (["--snapshot"], "--snapshot goes with --build"),
        (["--build", "--output", "dev"], "dev is not empty: choose a new directory"),
    ],
)
def test_usage(checkout, arguments, words):
    assert words in release(checkout, *arguments, status=2)


def test_a_tag_of_this_commit_is_no_hindrance(checkout):
    run(checkout, "git", "tag", "--annotate", "v0.2.0", "--message", "0.2.0")
    release(checkout, "--build")
    said = release(checkout, status=1)
    assert "v0.2.0 is this commit" in said
    assert "made" not in said


@pytest.mark.skipif(shutil.which("abidw") is None, reason="needs abigail-tools")
def test_an_interface_that_breaks_needs_a_new_minor_version(checkout):
    kept = checkout / "packaging/cmake/abi/libtsmalloc.abi"

    def next_release(version, source, status=0):
        (checkout / "build").mkdir(exist_ok=True)
        (checkout / "build/library.c").write_text(source)
        compiled = ("gcc", "-g", "-shared", "-fPIC", "build/library.c", "-o", "build/library.so")
        described = ("abidw", "--out-file", str(kept), "build/library.so")
        for command in (compiled, described):
            status, said = run(checkout, *command)
            assert status == 0, said
        (checkout / HEADER).write_text(macros(*map(int, version.split("."))))
        (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("0.2.0", version))
        commit(checkout)
        return release(checkout, "--check", status=status)

    trim = "int ts_trim(long keep) { return keep > 0; }\n"
    next_release("0.2.0", trim)
    run(checkout, "git", "tag", "v0.2.0")
    next_release("0.2.1", trim + "int ts_new(void) { return 0; }\n")
    for broken in ("int ts_other;\n", trim.replace("long", "char")):
        said = next_release("0.2.1", broken, status=1)
        assert "libtsmalloc.abi breaks programs that are linked with v0.2.0: mend it, or" in said
        release(checkout, "--build", "--snapshot", status=1)
    next_release("0.3.0", broken)
