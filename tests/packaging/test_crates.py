"""The crates: packaged, tested as packages, refused in one line."""

import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from package_commands import ROOT, artefacts
from prompt import merged, ran, script
from refusals import mentions

from tsmlab import __version__, paths

pytestmark = pytest.mark.long

MUSL = "x86_64-unknown-linux-musl"
# A compiler with glibc's headers also works for musl (packaging/rust/tsmalloc/README.md).
CXX = "ccache g++" if shutil.which("ccache") else "g++"
CRATES = ("tsmalloc-sys", "tsmalloc")


def try_cargo(folder, *arguments, **environment):
    """The exit status and the output of cargo, with two jobs at a time."""
    variables = os.environ | {"CARGO_BUILD_JOBS": "2", "CXX": CXX} | environment
    return merged("cargo", *arguments, cwd=folder, env=variables, stdin=subprocess.DEVNULL)


def cargo(folder, *arguments, **environment):
    """The output of cargo, which must succeed."""
    status, said = try_cargo(folder, *arguments, **environment)
    assert status == 0, f"cargo {' '.join(map(str, arguments))} ends with {status}:\n{said}"
    return said


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """The packages, unpacked, with one target directory for all tests."""
    made = tmp_path_factory.mktemp("crates")
    packages = artefacts("rust")
    for crate in CRATES:
        with tarfile.open(packages / f"{crate}-{__version__}.crate") as archive:
            archive.extractall(made, filter="data")
        (made / f"{crate}-{__version__}").rename(made / crate)
        (made / crate / "Cargo.lock").unlink()
    manifest = f'[workspace]\nmembers = {json.dumps(CRATES)}\nresolver = "3"\n{patch(made)}'
    (made / "Cargo.toml").write_text(manifest)
    shutil.copy(ROOT / "packaging/rust/Cargo.lock", made)
    return made


def patch(workspace):
    """Makes a manifest use our packages instead of crates.io's."""
    lines = (f"{crate} = {{ path = {json.dumps(str(workspace / crate))} }}\n" for crate in CRATES)
    return "[patch.crates-io]\n" + "".join(lines)


# ---- the packages ----


def test_built_again_without_a_network_they_have_the_same_bytes(tmp_path):
    packages = artefacts("rust")
    subprocess.run(
        [ROOT / "packaging/rust/build", "--output", tmp_path],
        env=os.environ | {"CARGO_NET_OFFLINE": "true", "TZ": "Asia/Tokyo", "CXX": CXX},
        umask=0o077,
        check=True,
        capture_output=True,
    )
    for crate in CRATES:
        name = f"{crate}-{__version__}.crate"
        assert (tmp_path / name).read_bytes() == (packages / name).read_bytes(), name


def test_they_have_a_licence_and_the_sources(workspace):
    licence = (ROOT / "LICENSE").read_bytes()
    assert all((workspace / crate / "LICENSE").read_bytes() == licence for crate in CRATES)
    vendored = workspace / "tsmalloc-sys/vendor"
    files = [path for path in vendored.rglob("*") if path.is_file()]
    assert len(files) > 100
    for path in files:
        assert path.read_bytes() == (ROOT / path.relative_to(vendored)).read_bytes()


# ---- their tests ----


@pytest.mark.parametrize(
    "features",
    ["", "override", "extension", "secure", "override,extension", "override,secure,extension"],
)
def test_their_own_tests_pass(workspace, features):
    chosen = ",".join(f"tsmalloc/{name}" for name in features.split(",") if name)
    said = cargo(workspace, "test", "--workspace", "--features", chosen)
    passed = sum(map(int, re.findall(r"test result: ok\. (\d+) passed", said)))
    assert passed >= 12
    assert "warning" not in said


def test_their_own_tests_pass_where_structures_are_checked(workspace):
    said = cargo(workspace, "test", "--workspace", TSMALLOC_DEBUG_LEVEL="1")
    assert "dealloc_names_the_size ... ok" in said


@pytest.mark.parametrize("features", ["", "tsmalloc/override"])
def test_their_own_tests_pass_with_musl(workspace, features):
    where = ran("rustc", "--print", "target-libdir", "--target", MUSL, status=0).stdout.strip()
    if not Path(where).is_dir():
        pytest.skip(f"rustc has no {MUSL}: rustup target add {MUSL}")
    cargo(workspace, "test", "--workspace", "--target", MUSL, "--features", features)


def test_clippy_rustfmt_and_rustdoc_have_no_complaint(workspace):
    for tool in ("clippy", "fmt"):
        if try_cargo(workspace, tool, "--version")[0] != 0:
            pytest.skip(f"there is no cargo {tool}: rustup component add clippy rustfmt")
    all_features = "tsmalloc/extension,tsmalloc/override,tsmalloc/secure"
    for features in ("tsmalloc/extension", all_features):
        check = ("clippy", "--workspace", "--all-targets", "--features", features)
        cargo(workspace, *check, "--", "--deny=warnings")
    cargo(ROOT / "packaging/rust", "fmt", "--all", "--check")
    cargo(workspace, "doc", "--no-deps", "--features", all_features, RUSTDOCFLAGS="-Dwarnings")


# ---- what they compile ----


def compilations(commands):
    """For each file of src/, the flags that determine its code."""
    found = {}
    for words in map(shlex.split, commands):
        source = next((word for word in words if re.search(r"/src/\w+/\w+\.cpp$", word)), None)
        if source is not None:
            # CMake marks files compiled into a shared library.
            flags = {word for word in words if re.match(r"-([fmD](?!\w+_EXPORTS$)|std|O)", word)}
            found["/".join(Path(source).resolve().parts[-2:])] = flags - OF_BUILD_TYPE
    return found


# Flags that cargo's and CMake's build types add to our own.
OF_BUILD_TYPE = {
    *("-DNDEBUG", "-m64", "-march=x86-64", "-fPIC", "-ffunction-sections", "-fdata-sections")
}


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        ("", "tsmalloc_(prefixed|engine|os)"),
        ("override", "tsmalloc(-static|_linked|_engine|_os|_override)"),
        ("override,secure", "tsmalloc(-secure|_secure|_os|_override)"),
    ],
)
def test_they_compile_what_cmake_compiles_with_the_same_flags(
    workspace, tmp_path, features, targets
):
    said = cargo(
        workspace,
        *("build", "-vv", "--package=tsmalloc-sys", "--features", features),
        CARGO_TARGET_DIR=str(tmp_path),
        CC_ENABLE_DEBUG_OUTPUT="1",
    )
    ours = compilations(re.findall(r"running: (.*)", said))
    database = json.loads((paths.build_dir() / "compile_commands.json").read_text())
    commands = [entry["command"] for entry in database]
    of_targets = re.compile(rf"/{targets}\.dir/")
    assert ours == compilations([command for command in commands if of_targets.search(command)])


# ---- refusals ----


def refusal(workspace, *arguments, **environment):
    """The line in which the build script says why it compiles nothing."""
    status, said = try_cargo(
        workspace, "check", "--package", "tsmalloc-sys", *arguments, **environment
    )
    assert status != 0
    lines = [line for line in said.splitlines() if line.startswith("error: tsmalloc-sys@")]
    assert len(lines) == 1, said
    assert "panicked" not in said
    return lines[0]


def test_a_compiler_without_cxx20_is_refused(workspace, tmp_path):
    compiler = script(
        tmp_path / "old-cxx",
        "#!/bin/sh\n"
        'case " $* " in *" -std=c++20 "*) echo "unknown flag" >&2; exit 1;; esac\n'
        'exec g++ "$@"\n',
    )
    line = refusal(workspace, CXX=str(compiler))
    mentions(line, f"{compiler} has no -std=c++20", "needs gcc 12 or clang 16")


def test_a_compiler_that_is_not_there_is_named(workspace):
    line = refusal(workspace, CXX="/nowhere/c++")
    mentions(line, "/nowhere/c++", "install g++, or name a compiler in CXX")


def test_a_compiler_that_fails_is_named(workspace, tmp_path):
    # Every flag is known, and none of our files is compiled.
    text = '#!/bin/sh\ncase "$*" in */core/*.cpp*) exit 1;; esac\nexec g++ "$@"\n'
    compiler = script(tmp_path / "broken-cxx", text)
    assert "does not compile tsmalloc" in refusal(workspace, CXX=str(compiler))


@pytest.mark.parametrize("target", ["x86_64-pc-windows-gnu", "i686-unknown-linux-gnu"])
def test_other_targets_are_refused(workspace, target):
    line = refusal(workspace, "--target", target)
    assert f"64-bit Linux, and {target} is another target" in line


def test_features_that_exclude_one_another_are_refused(workspace):
    line = refusal(workspace, "--target", MUSL, "--features", "override,secure")
    assert "override and secure together need glibc" in line


def test_an_unknown_debug_level_is_refused(workspace):
    assert "is 0, 1, 2 or 3" in refusal(workspace, TSMALLOC_DEBUG_LEVEL="9")


def test_a_package_without_sources_is_refused(workspace, tmp_path):
    copy = tmp_path / "a/b/c/tsmalloc-sys"
    shutil.copytree(workspace / "tsmalloc-sys", copy, ignore=shutil.ignore_patterns("vendor"))
    assert "has no sources of tsmalloc" in refusal(copy)


def test_the_build_names_what_is_missing(tmp_path):
    build = [sys.executable, ROOT / "packaging/rust/build"]
    for arguments, path, status, expected in (
        (["--what"], os.environ["PATH"], 1, "usage"),
        ([], str(tmp_path), 2, "there is no cargo"),
    ):
        done = ran(*build, *arguments, env={"PATH": path}, status=status)
        assert expected in done.stderr
        assert done.stderr.count("\n") == 1


# ---- programs ----

LIBRARY = """
#[global_allocator]
static ALLOCATOR: tsmalloc::TsMalloc = tsmalloc::TsMalloc;

#[unsafe(no_mangle)]
pub extern "C" fn sum_of_squares(count: u64) -> u64 {
    let squares = move || (0..count).map(|i| Box::new(i * i)).collect::<Vec<_>>();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(squares)).collect();
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).map(|square| *square).sum()
}
"""


def test_a_shared_library_has_a_heap_of_its_own(workspace, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/lib.rs").write_text(LIBRARY)
    (tmp_path / "build.rs").write_text(
        'fn main() { println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete"); }\n'
    )
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "squares"\nedition = "2024"\n[lib]\ncrate-type = ["cdylib"]\n'
        f'[dependencies]\ntsmalloc = "{__version__}"\n{patch(workspace)}'
    )
    cargo(tmp_path, "build", "--offline")
    built = tmp_path / "target/debug/libsquares.so"
    shown = subprocess.run(["nm", "-D", "--defined-only", built], capture_output=True, check=True)
    exported = {line.split()[-1].decode() for line in shown.stdout.splitlines()}
    assert "sum_of_squares" in exported
    assert not {name for name in exported if name.startswith("ts_") or "alloc" in name}
    sum_of_squares = ctypes.CDLL(str(built)).sum_of_squares
    sum_of_squares.restype = ctypes.c_uint64
    assert sum_of_squares(ctypes.c_uint64(10_000)) == 4 * sum(i * i for i in range(10_000))
