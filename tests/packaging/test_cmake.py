"""`cmake --install`: the contents of the prefix, and projects that build with it."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from package_commands import ROOT, run, try_to_run

from tsmlab import paths
from tsmlab.profile.model import read
from tsmlab.profile.symbols import look_up

PROJECT = Path(__file__).parent / "project"
FORMS = ("shared", "static", "object", "prefixed", "secure", "classic")


VERSION = run(ROOT / "dev" / "version.py").strip()
MINOR = VERSION.rpartition(".")[0]
# In the form of TSMALLOC_VERSION.
NUMBER = sum(
    int(part) * step for part, step in zip(VERSION.split("."), (10000, 100, 1), strict=True)
)


def install(prefix, *components):
    for component in components:
        run("cmake", "--install", paths.build_dir(), "--prefix", prefix, "--component", component)


def configure(build, *options):
    """Configures a user's project in an empty directory, with the compilers on the PATH."""
    run("cmake", "-S", PROJECT, "-B", build, *options)


def expect_all_served(build, *, secure="libtsmalloc-secure.so.0"):
    """Checks that each program that was built gets its memory from where its form says."""
    run("cmake", "--build", build, "--parallel", "2")
    programs = (*build.glob("c_*"), *build.glob("cxx_*"))
    assert programs, "no program was built"
    for program, words in ((path.name, run(path).strip()) for path in programs):
        assert "ours" in words, f"{program}: {words}"
        language, form = program.split("_")
        if form != "classic":
            assert words.startswith(f"version {NUMBER}, ")
        if language == "cxx":
            assert words.endswith("throws"), f"{program}: {words}"
            assert "not throw" not in words
        elif form in {"shared", "secure", "static", "object"}:
            file = re.search(r"malloc of (.*), ours", words)
            assert file is not None, words
            name = {"shared": "libtsmalloc.so.0", "secure": secure}.get(form, program)
            assert Path(file[1]).name.startswith(name), words


# ---- what is installed ----


def test_components_have_their_files(tmp_path):
    install(tmp_path, "runtime")
    libraries = {f"lib{name}.so.0" for name in ("tsmalloc", "tsmalloc-secure", "tsmalloc-classic")}
    expected = libraries | {f"{name[:-1]}{VERSION}" for name in libraries}
    assert {path.name for path in tmp_path.rglob("*") if not path.is_dir()} == expected
    for name in libraries:
        assert f"soname: [{name}]" in run("readelf", "-d", tmp_path / "lib" / name)
    install(tmp_path, "dev")
    archives = ("libtsmalloc.a", "libtsmalloc-prefixed.a", "tsmalloc/tsmalloc.o")
    for name in (*archives, "libtsmalloc.so"):
        assert (tmp_path / "lib" / name).is_file()
    assert (tmp_path / "share/man/man7/libtsmalloc.7").is_file()
    assert (tmp_path / "share/man/man3/ts_stats.3").read_text() == ".so man3/libtsmalloc.3\n"
    assert (tmp_path / "share/man/man3/libtsmalloc.3").is_file()


def test_the_lab_s_home_leads_to_the_libraries(prefix):
    package = prefix / "share/tsmalloc/python/tsmlab"
    home = package / "home"
    assert home.readlink() == Path("../../../../lib/tsmalloc")
    for name in ("libtsmalloc", "libtsmalloc-secure"):
        served = (home / "lib" / f"{name}.so").resolve()
        assert served == (prefix / "lib" / f"{name}.so.0").resolve()
        assert served.is_file()
    for program in ("measure", "record", "bench-server"):
        assert (home / "bin" / program).stat().st_mode & 0o111
    assert (home / "bin/tsmalloc").resolve() == (prefix / "bin/tsmalloc").resolve()
    assert (home / "lib/counted/libtsmalloc.so").is_file()
    sources = {path.name for path in (ROOT / "lab" / "experiments").glob("*.toml")}
    assert {path.name for path in (home / "experiments").iterdir()} == sources
    assert len(list((home / "traces").iterdir())) == len(
        list((ROOT / "lab" / "traces").glob("*.tstrace"))
    )
    assert (home / "bench/workloads.toml").is_file()
    assert (package / "report/style.css").is_file()
    completion = (
        "bash-completion/completions/tsmalloc",
        "zsh/site-functions/_tsmalloc",
        "fish/vendor_completions.d/tsmalloc.fish",
    )
    assert all((prefix / "share" / name).is_file() for name in completion)


def test_no_text_knows_the_prefix_or_the_build(prefix):
    texts = [*prefix.rglob("*.cmake"), *prefix.rglob("*.pc"), prefix / "lib/tsmalloc/tsmalloc-lab"]
    assert len(texts) == 6
    for text in texts:
        for place in (prefix, paths.build_dir(), ROOT):
            assert str(place) not in text.read_text(), f"{text} names {place}"


# Runs a command with a directory read-only, even for root.
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


@pytest.mark.parametrize("component", [(), ("--component", "dev")])
def test_a_prefix_that_cannot_be_written_is_named_with_the_remedy(tmp_path, component):
    kept = tmp_path / "read only"
    kept.mkdir(mode=0o555)
    enter = ("unshare", "--mount", "sh", "-c", READ_ONLY, "sh", kept) if os.geteuid() == 0 else ()
    for prefix in (kept, kept / "a new folder", Path("/proc/tsmalloc")):
        install = ("cmake", "--install", paths.build_dir(), "--prefix", prefix, *component)
        status, said = try_to_run(*enter, *install)
        assert status != 0
        assert f"  {prefix} cannot be written: install tsmalloc with `sudo`, or with" in said
        assert "`--prefix FOLDER` in a folder of your own" in said
        assert "-- Installing" not in said
    assert not list(kept.iterdir())


def test_an_installation_leaves_no_trial_behind(prefix):
    assert {path.name for path in prefix.iterdir()} == {"bin", "include", "lib", "share"}


def functions_of(*headers):
    """The functions declared in public headers."""
    found = set()
    for header in headers:
        text = (ROOT / "include/tsmalloc" / header).read_text()
        text = re.sub(r"/\*.*?\*/|^#.*?[^\\]$", "", text, flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"static inline [^;{]*[;{]", "", text)  # the header's own
        found |= set(re.findall(r"\b(ts_\w+)(?=\()|TSMALLOC_FUNCTION_\([^,]+, (ts_\w+)", text))
    return {name for pair in found for name in pair if name}


def test_the_prefixed_archive_has_its_header_s_names_alone(prefix):
    said = run("nm", "--defined-only", "--extern-only", prefix / "lib/libtsmalloc-prefixed.a")
    defined = {line.split()[-1] for line in said.splitlines() if len(line.split()) == 3}
    kept = (ROOT / "src/libc/prefixed.txt").read_text().split()
    assert defined == set(kept)
    headers = functions_of("prefixed.h", "tsmalloc.h", "arena.h")
    declared = {name for name in headers if "_of_" not in name}
    assert declared - {"ts_available"} == defined
    said = run("nm", "--undefined-only", prefix / "lib/libtsmalloc-prefixed.a")
    undefined = {line.split()[-1] for line in said.splitlines() if line.startswith(" ")}
    assert not [name for name in undefined if name.startswith("_Z") or "malloc" in name]


def test_the_classic_library_exports_what_its_header_declares(prefix):
    library = prefix / "lib/libtsmalloc-classic.so.0"
    said = run("nm", "--dynamic", "--defined-only", library)
    exported = {line.split()[-1] for line in said.splitlines()}
    assert exported == functions_of("classic.h")


NAMED = "TSMALLOC_0 { global: malloc; local: *; };"


def test_a_named_version_would_replace_nothing(tmp_path):
    """Why exports.map has no version name (docs/adr/0034): the library with and without one."""
    (tmp_path / "program.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "int main(void) { void* (*volatile f)(size_t) = malloc; Dl_info where;"
        " return dladdr((void*)f, &where) == 0 || puts(where.dli_fname) < 0; }"
    )
    (tmp_path / "library.c").write_text("void* malloc(unsigned long n) { return n ? 0 : 0; }")
    run("cc", "program.c", "-o", "program", "-ldl", cwd=tmp_path)
    for name, served in ((NAMED, "libc.so.6"), (NAMED.replace("TSMALLOC_0", ""), "library.so")):
        (tmp_path / "exports.map").write_text(name)
        shared = ("-shared", "-fPIC", "-fno-builtin", "-Wl,--version-script=exports.map")
        run("cc", *shared, "library.c", "-o", "library.so", cwd=tmp_path)
        said = run("readelf", "--wide", "--dyn-syms", tmp_path / "library.so")
        assert ("malloc@@TSMALLOC_0" in said) == (name == NAMED)
        _, faults = try_to_run("python3", ROOT / "tests/exports.py", tmp_path / "library.so")
        assert ("has versions, as of malloc@@TSMALLOC_0" in faults) == (name == NAMED)
        preloaded = "LD_DEBUG=bindings LD_PRELOAD=./library.so ./program 2>&1 || true"
        found = run("sh", "-c", preloaded, cwd=tmp_path)
        binding = rf"program \[0\] to \S*{re.escape(served)} \[0\]: normal symbol .malloc'"
        assert re.search(binding, found)


ABI_CHECK = ROOT / "packaging/cmake/abi/check"


@pytest.mark.long
def test_the_binary_interface_is_the_one_that_is_kept(tmp_path):
    if shutil.which("abidw") is None:
        pytest.skip("there is no abidw (Debian: abigail-tools)")
    build = ("--build", tmp_path / "build")
    run(ABI_CHECK, *build)
    for library, old, new in (
        ("libtsmalloc", "'ts_version'", "'ts_versions'"),
        ("libtsmalloc-classic", "offset-in-bits='384'", "offset-in-bits='448'"),
    ):
        other = tmp_path / library
        shutil.copytree(ABI_CHECK.parent, other)
        kept = other / f"{library}.abi"
        assert old in kept.read_text()
        kept.write_text(kept.read_text().replace(old, new))
        status, said = try_to_run(ABI_CHECK, *build, "--against", other)
        assert status == 1
        assert f"{library}.so.0: programs that are linked with it may break" in said


# ---- find_package ----


def test_a_project_builds_in_every_form(prefix, tmp_path):
    configure(tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DFORMS={';'.join(FORMS)}")
    expect_all_served(tmp_path)


@pytest.mark.long
def test_the_prefix_is_moved_and_all_builds_again(tmp_path):
    first = tmp_path / "first"
    install(first, "runtime", "dev")
    moved = first.rename(tmp_path / "moved to a space")
    build = tmp_path / "build"
    forms = "-DFORMS=shared;object;prefixed;tsmalloc"
    configure(build, f"-DCMAKE_PREFIX_PATH={moved}", forms)
    expect_all_served(build)
    assert f"{moved}/lib/libtsmalloc.so.0" in run(build / "c_shared")

    pkg_config = shutil.which("pkg-config")
    if pkg_config is None:
        pytest.skip("there is no pkg-config (Debian: pkgconf)")
    flags = "$(pkg-config --cflags --libs tsmalloc)"
    archive = "$(pkg-config --cflags tsmalloc) $(pkg-config --variable=prefixed tsmalloc)"
    prefixed = "$(pkg-config --cflags --libs tsmalloc-prefixed)"
    for source, arguments in (
        ("main.c", f"{flags} -Wl,-rpath,'\"{moved}/lib\"'"),
        ("main.c", f"-DLINKED_STATICALLY -static {flags.replace('--', '--static --', 1)}"),
        ("prefixed.c", archive),
        ("prefixed.c", prefixed),
        ("prefixed.cpp", f"-std=c++17 {prefixed} -lstdc++"),
    ):
        program = tmp_path / "by-pkg-config"
        line = f"eval cc {PROJECT / source} -o {program} {arguments}"
        run("sh", "-c", line, PKG_CONFIG_PATH=str(moved / "lib/pkgconfig"))
        assert "ours" in run(program)
    query = (pkg_config, "--variable=preload", "tsmalloc")
    preload = run(*query, PKG_CONFIG_PATH=str(moved / "lib/pkgconfig")).strip()
    assert Path(preload.replace("\\", "")).resolve() == (moved / "lib/libtsmalloc.so.0").resolve()


def test_the_prefixed_header_says_that_it_comes_too_late(tmp_path):
    source = tmp_path / "late.c"
    source.write_text("#include <tsmalloc/arena.h>\n#include <tsmalloc/prefixed.h>\n")
    compile_it = ("cc", "-fsyntax-only", f"-I{ROOT}/include", source)
    status, said = try_to_run(*compile_it)
    assert status != 0
    assert "include <tsmalloc/prefixed.h> first, or compile with -DTSMALLOC_PREFIXED" in said
    run(*compile_it, "-DTSMALLOC_PREFIXED")


UNREAD = """\
#include <stdlib.h>
#include <tsmalloc/arena.h>
int main(void) {
  void* block = malloc(100);
  const int served = ts_usable_size(block) >= 100 && ts_owns(block) && ts_block_of(block, 0, 0);
  free(block);
  return served ? 0 : 1;
}
"""


@pytest.mark.parametrize("kind", ["", "-DTSMALLOC_REQUIRED", "-DTSMALLOC_PREFIXED"])
@pytest.mark.parametrize("language", ["c -std=c99", "c++ -std=c++98"])
def test_a_block_that_is_not_written_yet_may_be_asked_about(tmp_path, kind, language):
    source = tmp_path / "program"
    source.write_text(UNREAD)
    strict = "-O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wredundant-decls -Werror"
    line = f"cc -x {language} {strict} {kind} -S {source} -o {source}.s -I{ROOT}/include"
    run(*line.split())


def test_the_resources_compile_without_rtti(tmp_path):
    source = tmp_path / "program.cpp"
    source.write_text("#include <tsmalloc/memory_resource.hpp>\nint main() { ts::resource(); }\n")
    run("c++", "-std=c++17", "-fno-rtti", "-fsyntax-only", f"-I{ROOT}/include", source)


NO_MALLOC = """\
#include <tsmalloc/tsmalloc.h>
int main(void) { return ts_available() == 1 ? 0 : 1; }
"""
NO_MALLOC_PROJECT = """\
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(tsmalloc CONFIG REQUIRED)
add_link_options(LINKER:--as-needed)
foreach(form shared static secure)
  add_executable(${form} main.c)
  target_link_libraries(${form} PRIVATE tsmalloc::${form})
endforeach()
"""


def test_a_program_that_calls_no_malloc_is_served_as_well(prefix, tmp_path):
    source = tmp_path / "main.c"
    source.write_text(NO_MALLOC)
    (tmp_path / "CMakeLists.txt").write_text(NO_MALLOC_PROJECT)
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    for form in ("shared", "static", "secure"):
        run(build / form)
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config (Debian: pkgconf)")
    compile_it = f"cc -Wl,--as-needed {source} -o {build}/program"
    line = f"{compile_it} $(pkg-config --cflags --libs tsmalloc) && {build}/program"
    places = {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig", "LD_LIBRARY_PATH": f"{prefix}/lib"}
    run("sh", "-c", line, **places)


STATIC = """\
#include <stdlib.h>
__attribute__((noinline)) void* innermost(size_t bytes) {
  void* volatile block = malloc(bytes);
  return block;
}
__attribute__((noinline)) int middle(size_t bytes) { return innermost(bytes) == NULL; }
int main(void) { return middle(12345) ? 7 : 0; }
"""
STATIC_PROJECT = """\
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(tsmalloc CONFIG REQUIRED COMPONENTS static object)
set(CMAKE_C_FLAGS "-O2 -fomit-frame-pointer")
foreach(form static object)
  foreach(way static static-pie)
    add_executable(${form}-${way} main.c)
    target_link_libraries(${form}-${way} PRIVATE tsmalloc::${form})
    target_link_options(${form}-${way} PRIVATE -${way})
  endforeach()
endforeach()
"""


def expect_whole_stacks(program):
    """In the program's heap profile, although gcc omits the unwind table index with -static."""
    file = program.with_suffix(".pb")
    run(program, TSMALLOC_PROFILE="1", TSMALLOC_PROFILE_OUTPUT=str(file))
    profile = read(file)
    frames = look_up(profile).frames
    (row,) = (row for row in profile.rows if row.bytes == 12345)
    named = [frame.function for each in row.stack for frame in frames[each]]
    assert not row.cut, named
    assert named[:3] == ["innermost", "middle", "main"]


def test_static_programs_have_whole_stacks_in_their_heap_profiles(tmp_path):
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    install(prefix, "runtime", "dev")
    (tmp_path / "main.c").write_text(STATIC)
    (tmp_path / "CMakeLists.txt").write_text(STATIC_PROJECT)
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    for form in ("static", "object"):
        for way in ("static", "static-pie"):
            expect_whole_stacks(build / f"{form}-{way}")
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config (Debian: pkgconf)")
    flags = "-O2 -fomit-frame-pointer -static $(pkg-config --static --cflags --libs tsmalloc)"
    line = f"cc {tmp_path}/main.c -o {build}/by-pkg-config {flags}"
    run("sh", "-c", line, PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig")
    expect_whole_stacks(build / "by-pkg-config")


FIND = """\
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES NONE)
find_package(tsmalloc {} CONFIG REQUIRED)
foreach(form shared static object prefixed secure classic)
  if(TARGET tsmalloc::${{form}})
    message(STATUS "has ${{form}}")
  endif()
endforeach()
"""


def find(folder, prefix, wanted, *options):
    """A project that only looks for the package. Joins the lines that CMake wrapped."""
    source = folder / "find"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(FIND.format(wanted))
    at = ("-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    status, said = try_to_run("cmake", *at, *options)
    return status, " ".join(said.split())


@pytest.mark.parametrize("wanted", ["", MINOR, VERSION, f"{VERSION} EXACT", "COMPONENTS object"])
def test_a_version_of_the_same_minor_is_found(prefix, tmp_path, wanted):
    status, said = find(tmp_path, prefix, wanted)
    assert status == 0, said
    assert all(f"has {form}" in said for form in FORMS)


@pytest.mark.parametrize(
    ("wanted", "options", "why"),
    [
        ("0.0.9", (), f"tsmalloc-config.cmake, version: {VERSION} "),
        ("0.99", (), f"tsmalloc-config.cmake, version: {VERSION} "),
        ("1.0", (), f"tsmalloc-config.cmake, version: {VERSION} "),
        ("", ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=sparc64"), "{own}, 64 bits"),
        ("", ("-DCMAKE_SIZEOF_VOID_P=4",), "{own}, 64 bits"),
        ("", ("-DCMAKE_SYSTEM_NAME=FreeBSD", "-DCMAKE_SYSTEM_VERSION=14"), f"{VERSION} for Linux,"),
        ("COMPONENTS speed", (), "tsmalloc has no component speed; it has shared;static;object;"),
        ("COMPONENTS secure", (), "lib/libtsmalloc-secure.so.0 does not exist"),
    ],
)
def test_what_does_not_fit_is_not_found_and_why(prefix, tmp_path, wanted, options, why):
    if wanted == "COMPONENTS secure":
        copy = shutil.copytree(prefix / "lib/cmake", tmp_path / "lib/cmake")
        prefix = copy.parents[1]
    status, said = find(tmp_path, prefix, wanted, *options)
    assert status != 0
    own = f"for Linux, {run('uname', '-m').strip()}"
    assert why.format(own=own) in said


@pytest.mark.parametrize("form", ["static", "object"])
def test_a_shared_library_does_not_bring_the_malloc_of_a_process(prefix, tmp_path, form):
    options = (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMISTAKE={form}")
    status, said = try_to_run("cmake", "-S", PROJECT, "-B", tmp_path, *options)
    assert status != 0
    assert f"{form}_is_for_executables__a_library_takes_tsmalloc::shared" in said


# ---- tsmalloc inside another project's build ----


@pytest.fixture
def sources(tmp_path):
    """What git tracks, as an archive."""
    archive = tmp_path / "tsmalloc.tar"
    run("git", "archive", "--prefix=tsmalloc/", "--output", archive, "HEAD", cwd=ROOT)
    return archive


def host_commands(build):
    """The compile flags of the project's own files, without paths of headers and output."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].startswith(str(PROJECT)):
            words = re.sub(r"(-isystem |-I)\S+ ", "", entry["command"]).split()
            found[words[words.index("-o") + 1]] = words
    return found


def cache_names(build):
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    return {line.split(":")[0] for line in lines if re.match(r"\w[\w-]*:", line)}


@pytest.mark.parametrize("source", ["linked", "prefixed"])
def test_a_strict_host_s_clang_says_nothing_of_what_embedders_compile(source):
    clang = shutil.which("clang++") or shutil.which("clang++-16")
    if clang is None:
        pytest.skip("there is no clang++ (Debian: clang-16)")
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
    folders = (f"-I{ROOT}/src", f"-I{ROOT}/include")
    run(clang, "-std=c++20", "-fsyntax-only", *strict, *folders, ROOT / f"src/libc/{source}.cpp")


@pytest.mark.long
def test_nothing_leaks_into_a_host_that_is_strict(prefix, tmp_path, sources):
    run("tar", "-xf", sources, cwd=tmp_path)
    strict = "-Wall -Wextra -Werror"
    options = (
        *(f"-DCMAKE_C_FLAGS={strict}", f"-DCMAKE_CXX_FLAGS={strict}"),
        *("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DFORMS=shared;static;object;prefixed"),
    )
    installed, part = tmp_path / "installed", tmp_path / "part"
    configure(installed, f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    configure(part, f"-DTSMALLOC_SOURCE={tmp_path}/tsmalloc", *options)
    expect_all_served(part)
    assert host_commands(part) == host_commands(installed)
    assert len(host_commands(part)) == 8
    ours = re.compile(r"(_?TSMALLOC|tsmalloc|CMAKE|_CMAKE|FIND_PACKAGE_MESSAGE_DETAILS)_")
    assert not [name for name in cache_names(part) - cache_names(installed) if not ours.match(name)]
    assert "Total Tests: 0" in run("ctest", "-N", cwd=part)
    run("cmake", "--install", part, "--prefix", tmp_path / "nothing")
    assert not list((tmp_path / "nothing").rglob("*"))
    # Only the linked targets were built, and in tsmalloc's own directory.
    built = {path.name for path in part.rglob("*.so*")}
    assert built == {f"libtsmalloc.so{version}" for version in ("", ".0", f".{VERSION}")}
    assert not [path for path in part.iterdir() if path.name in {"lib", "bin"}]


@pytest.mark.long
def test_fetched_from_an_archive_without_optimisation_and_with_lto(tmp_path, sources):
    build = tmp_path / "build"
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON")
    configure(build, f"-DTSMALLOC_SOURCE={sources}", "-DFORMS=object;prefixed", *options)
    expect_all_served(build)
