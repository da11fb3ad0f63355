"""`tsmalloc profile` and TSMALLOC_PROFILE: profiles of programs whose call sites are known.

With an interval of one byte every malloc is a sample, so the profile must be exact, site by site;
with longer ones, as exact as it claims. tests/instructions counts the cost of sampling.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compiled_programs import REFUSES
from prompt import ran
from refusals import mentions

from tsmlab import paths
from tsmlab.profile import messages, text
from tsmlab.profile.binaries import Origin
from tsmlab.profile.changes import LoadedProfile, between
from tsmlab.profile.model import read
from tsmlab.profile.sites import Stacks, gather
from tsmlab.profile.symbols import look_up

SOURCE = Path(__file__).with_name("profiled_program.c")
MANY = 2000
VERSION = subprocess.check_output(
    [paths.repository_root() / "dev" / "version.py"], text=True
).strip()

# Bytes in use, and the number of blocks, by site.
EXACT = {
    "keeps_small": (MANY * 100, MANY),
    "keeps_odd": (sum(1 + i % 1000 for i in range(MANY)), MANY),
    "keeps_large": (MANY // 10 * 100_000, MANY // 10),
    "keeps_zeroed": (MANY // 10 * 3000, MANY // 10),
    "keeps_grown": (MANY // 10 * 70_000, MANY // 10),
    "keeps_aligned": (MANY // 10 * 512, MANY // 10),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    target = tmp_path_factory.mktemp("profiled") / "profiled_program"
    flags = ["-g", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]
    subprocess.run(["gcc", *flags, SOURCE, "-o", target], check=True)
    return target


def variables(**more):
    options = {f"TSMALLOC_{name}": str(value) for name, value in more.items()}
    return dict(os.environ) | {"LD_PRELOAD": str(paths.library("libtsmalloc.so"))} | options


def run(program, folder, *words, **more):
    return ran(program, *words, env=variables(**more), cwd=folder)


def profile_of(folder, pattern="tsmalloc.*.pb"):
    (path,) = folder.glob(pattern)
    return read(path)


def written(program, folder, *words, **more):
    """The profile that the program writes, which must succeed."""
    done = run(program, folder, *words, **more)
    assert (done.returncode, done.stderr) == (0, "")
    return profile_of(folder)


def sites_of(profile, of="inuse"):
    found = gather(profile, Stacks(profile, look_up(profile)), "function", of)
    return {site.frame.function: site for site in found.sites}


def test_every_malloc_is_in_an_exact_profile(program, tmp_path):
    profile = written(program, tmp_path, "everything", PROFILE=1)
    assert (profile.dropped, profile.period) == (0, 1)
    assert profile.comment("kind") == "exit"
    assert profile.comment("command") == "profiled_progra"
    assert profile.comment("tsmalloc") == VERSION
    sites = sites_of(profile)
    held = {
        name: (round(sites[name].flat.total), round(sites[name].objects.total)) for name in EXACT
    }
    assert held == EXACT
    allocated = sites_of(profile, "alloc")
    assert round(allocated["frees_at_once"].flat.total) == MANY * 200
    assert "frees_at_once" not in sites
    assert not any(row.cut for row in profile.rows)


def test_pprof_names_the_program(program, tmp_path):
    """pprof takes the first mapping for the program, whichever came first in a stack."""
    message = messages.read(written(program, tmp_path, "everything", PROFILE="64K").path)
    assert len(message.mapping) > 1
    assert message.string_table[message.mapping[0].filename].decode() == str(program)
    assert len({each.id for each in message.mapping}) == len(message.mapping)


def test_what_is_freed_is_in_use_no_longer(program, tmp_path):
    profile = written(program, tmp_path, "everything", "free", PROFILE=1)
    assert not set(EXACT) & set(sites_of(profile))
    allocated = sites_of(profile, "alloc")
    assert round(allocated["keeps_small"].flat.total) == MANY * 100


def test_the_peak_is_kept(program, tmp_path):
    profile = written(program, tmp_path, "everything", "free", PROFILE=1, PROFILE_AT="peak")
    assert profile.comment("kind") == "peak"
    large = sites_of(profile)["keeps_large"].flat.total
    assert EXACT["keeps_large"][0] * 31 / 32 <= large <= EXACT["keeps_large"][0]


@pytest.mark.parametrize(
    "limits", [{"LIMIT": "30M"}, {"HARD_LIMIT": "30M"}], ids=["passed", "refuses"]
)
def test_a_profile_at_a_limit(program, tmp_path, limits):
    """In a thread with 16 KiB of stack. If memory is refused, the program then ends abnormally."""
    run(program, tmp_path, "small-stack", PROFILE="64K", PROFILE_AT="limit", **limits)
    profile = profile_of(tmp_path)
    assert profile.comment("kind") == "limit"
    assert sites_of(profile)["keeps_large"].flat.total < 60_000_000


@pytest.mark.long
def test_estimates_hold_the_truth(program, tmp_path):
    """In 33 of 40 profiles, each site's 95% interval has the truth (one in 10,000 tests fails)."""
    rounds, least = 40, 33
    hits = dict.fromkeys(EXACT, 0)
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        sites = sites_of(written(program, folder, "everything", PROFILE="4K"))
        for name, (truth, _) in EXACT.items():
            low, high = sites[name].flat.interval()
            hits[name] += low - 1 <= truth <= high + 1
    assert min(hits.values()) >= least, hits


def test_threads_and_forks(program, tmp_path):
    done = run(
        program, tmp_path, "thread", "everything", "fork", PROFILE=1, PROFILE_OUTPUT="own.pb"
    )
    assert (done.returncode, done.stderr) == (0, "")
    own = sites_of(read(tmp_path / "own.pb"), "alloc")
    assert round(own["frees_at_once"].flat.total) == 2 * MANY * 200
    (path,) = set(tmp_path.glob("own.pb.*"))
    child = read(path)
    assert path.name == f"own.pb.{child.pid}"
    assert round(sites_of(child)["keeps_small"].flat.total) == MANY * 100 + 100


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("missing/p.pb", "no such directory"),
        ("folder", "it is a directory"),
        ("x" * 300, "the path is too long|error 36"),
        ("y" * 2000, "is too long; using the default"),
        ("link", "it is a symbolic link"),
        ("pipe", "it is a device, a pipe or a socket"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_in_a_line(program, tmp_path, output, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    done = run(program, tmp_path, "everything", PROFILE="64K", PROFILE_OUTPUT=output)
    assert (done.returncode, done.stdout) == (0, "ready\n")
    assert re.search(f"^tsmalloc: .*({said}).*\n$", done.stderr), done.stderr
    assert not list(tmp_path.glob("*.part"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "pipe").is_fifo()


def test_processes_with_one_path_do_not_write_into_one_file(program, tmp_path):
    """The last profile stays; an earlier file at that path passes on neither owner nor mode."""
    before = tmp_path / "one.pb"
    before.touch(mode=0o666)
    command = [program, "everything"]
    environment = variables(PROFILE="4K", PROFILE_OUTPUT="one.pb")
    null = subprocess.DEVNULL
    for _ in range(5):
        running = [
            subprocess.Popen(
                command, env=environment, cwd=tmp_path, stdout=null, stderr=subprocess.PIPE
            )
            for _ in range(4)
        ]
        assert [process.communicate()[1] for process in running] == [b""] * 4
        assert sites_of(read(before))["keeps_large"].flat.total > 0
    assert before.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["one.pb"]


RUNS_WITH = r"""
#include <unistd.h>
int main(int argc, char **argv) {  /* PROGRAM VARIABLE... */
  return argc < 2 ? 2 : execve(argv[1], (char *[]){argv[1], "everything", NULL}, argv + 2);
}
"""


def test_of_two_paths_the_first_counts(program, tmp_path, build):
    names = ("first.pb", "second.pb")
    library = f"LD_PRELOAD={paths.library('libtsmalloc.so')}"
    outputs = [f"TSMALLOC_PROFILE_OUTPUT={tmp_path}/{name}" for name in names]
    subprocess.run(
        [build("runs_with.c", RUNS_WITH), program, library, "TSMALLOC_PROFILE=64K", *outputs],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert [(tmp_path / name).exists() for name in names] == [True, False]


def test_a_limit_of_the_size_of_files_is_told_in_a_line(program, tmp_path):
    shell = ("/bin/sh", "-c", 'ulimit -f 0; exec "$0" everything', program)
    done = ran(*shell, env=variables(PROFILE="64K"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ready\n")
    assert "ulimit -f" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(program, tmp_path, small_disk):
    disk = small_disk("4k")
    done = run(program, tmp_path, "everything", PROFILE=64, PROFILE_OUTPUT=f"{disk}/p.pb")
    assert done.returncode == 0
    mentions(done.stderr, f"{disk}/p.pb", "full")
    assert not list(disk.iterdir())


# --- what strands slabs -------------------------------------------------------------------------


def told(verb, *words):
    """The output of a verb, which must succeed."""
    command = [paths.tool("tsmalloc"), verb, *map(str, words)]
    return ran(*command, status=0).stdout


def explained(pid):
    return json.loads(told("explain", "--json", pid))


@pytest.fixture
def pinned(program, tmp_path):
    with running(program, tmp_path, "pin", "wait", PROFILE="64K") as process:
        yield process


def test_the_site_that_pins_slabs_is_named(pinned, tmp_path):
    """From outside, for the profile; explain knows how much is stranded, without names."""
    profile = taken(tmp_path, pinned.pid)
    sites = sites_of(profile, "pinned")
    assert max(sites, key=lambda name: sites[name].flat.total) == "pins"
    flat = sites["pins"].flat
    account = explained(pinned.pid)
    free = account["resident"]["free_in_slabs"]
    low, high = flat.interval(z=5.0)
    assert low < free < high  # fails less than once in a million times
    assert free > 10 * sites_of(profile)["pins"].flat.total
    top, *others = account["pinned_by"]
    assert top["module"] == "profiled_progra"
    assert top["bytes"] == pytest.approx(flat.total, rel=0.01)
    assert top["error_bytes"] == pytest.approx(1.96 * flat.variance**0.5, rel=0.02)
    assert sum(each["bytes"] for each in others) < top["bytes"] / 10


def test_the_program_itself_writes_what_pins(program, tmp_path):
    sites = sites_of(written(program, tmp_path, "pin", PROFILE="64K"), "pinned")
    assert max(sites, key=lambda name: sites[name].flat.total) == "pins"
    assert sites["pins"].flat.total > 30e6


def test_people_read_what_pins(pinned):
    shown = told("explain", pinned.pid)
    (line,) = re.findall(r"^ +([\d.]+) ±(\d+)%  profiled_progra\+0x[0-9a-f]+$", shown, re.MULTILINE)
    assert float(line[0]) > 30
    assert f"tsmalloc profile show --type pinned tsmalloc.{pinned.pid}.pb" in shown


def test_placeholders_are_not_the_programs(pinned):
    """Live bytes are 18,750 blocks of 208 bytes, and the C library's own."""
    truth = 300_000 // 16 * 208
    assert truth <= explained(pinned.pid)["live_bytes"] <= truth + 64 * 1024


# --- a running process ----------------------------------------------------------------------------


@contextlib.contextmanager
def running(program, folder, *words, **more):
    with subprocess.Popen(
        [program, *words], env=variables(**more), cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def server(program, tmp_path):
    with running(program, tmp_path, "serve") as process:
        yield process


def take(folder, *words):
    return ran(paths.tool("tsmalloc"), "profile", *map(str, words), cwd=folder)


def taken(folder, *words):
    """The profile that the command takes, which must succeed."""
    took = take(folder, *words)
    assert took.returncode == 0, took.stderr
    return profile_of(folder)


def option(pid, name):
    return re.search(f"^TSMALLOC_{name}=(.*)$", told("set", pid), re.MULTILINE)[1]


def test_a_leak_in_a_running_process_is_named(server, tmp_path):
    took = take(tmp_path, "--seconds", 1, "--interval", "16K", server.pid)
    assert took.returncode == 0, took.stderr
    assert re.fullmatch(
        rf"Process {server.pid} \(profiled_progra\): \d+ samples, \d+ of blocks in use: "
        rf"tsmalloc\.{server.pid}\.pb\n",
        took.stdout,
    )
    sites = sites_of(profile_of(tmp_path))
    assert max(sites.values(), key=lambda site: site.flat.total).frame.function == "leaks"
    assert option(server.pid, "PROFILE") == "off"  # as before
    assert server.poll() is None


def test_a_process_that_samples_is_read_at_once_and_what_grew_is_told(server, tmp_path):
    told("set", server.pid, "PROFILE=16K")
    loaded_profiles = []
    for name in ("first.pb", "later.pb"):
        time.sleep(0.7)
        took = take(tmp_path, "--output", name, server.pid)
        assert (took.returncode, took.stderr) == (0, "")
        profile = read(tmp_path / name)
        loaded_profiles.append(LoadedProfile(profile, Stacks(profile, look_up(profile))))
    assert option(server.pid, "PROFILE") == "16K"
    grown = between(*loaded_profiles, by="function", of="inuse").grown
    assert [site.frame.function for site in grown] == ["leaks"]


def test_a_program_that_samples_by_itself_goes_on(program, tmp_path):
    """Started by ts_profile_start(), which no option shows."""
    with running(program, tmp_path, "start", "serve") as server:
        counts = []
        names = ["", ".2", ".3"]  # the first profile stays
        for words, name in zip(((), ("--seconds", "0.5"), ()), names, strict=True):
            time.sleep(0.3)
            took = take(tmp_path, *words, server.pid)
            assert took.returncode == 0, took.stderr
            assert ("sampling for 0.5 s" in took.stderr) == bool(words), took.stderr
            profile = profile_of(tmp_path, f"tsmalloc.{server.pid}{name}.pb")
            assert profile.period == 16384
            counts.append(sum(row.allocs for row in profile.rows))
        assert counts == sorted(set(counts))
        took = take(tmp_path, "--interval", "8K", server.pid)
        assert (took.returncode, took.stdout) == (1, "")
        assert re.fullmatch(r"tsmalloc: [^\n]*ts_profile_start[^\n]*\n", took.stderr), took.stderr


@pytest.mark.parametrize(
    ("by_lab", "ending"),
    [
        (False, signal.SIGINT),
        (False, signal.SIGHUP),
        (True, signal.SIGINT),
        (True, signal.SIGTERM),
    ],
)
def test_ctrl_c_ends_the_sampling_and_keeps_the_profile(server, tmp_path, by_lab, ending):
    command = [sys.executable, "-m", "tsmlab"] if by_lab else [paths.tool("tsmalloc")]
    with subprocess.Popen(
        # This may run under nohup.
        ["env", "--default-signal", *command, "profile", "--seconds", "60", str(server.pid)],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as taking:
        assert "sampling for 60 s" in taking.stderr.readline()
        time.sleep(0.5)
        taking.send_signal(ending)
        out, _ = taking.communicate(timeout=30)
    assert taking.returncode == 0
    assert "samples" in out
    assert profile_of(tmp_path).rows
    assert option(server.pid, "PROFILE") == "off"


def test_under_nohup_a_hang_up_ends_nothing(server, tmp_path):
    words = ("profile", "--seconds")
    began = time.monotonic()
    with subprocess.Popen(
        ["env", "--ignore-signal=HUP", paths.tool("tsmalloc"), *words, "1.5", str(server.pid)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        time.sleep(0.5)
        command.send_signal(signal.SIGHUP)
        assert command.wait(timeout=30) == 0
    assert time.monotonic() - began > 1.4
    assert profile_of(tmp_path).rows


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--interval", "2T", "{pid}"), 1, "2T: .*1G"),
        (("--interval", "{pid}"), 1, "tsmalloc profile PID.*pgrep"),
        (("--seconds", "0", "{pid}"), 1, r"--seconds: '0'.* 0\.01"),
        (("--frequently", "{pid}"), 1, "--frequently: .*profile --help"),
        (("--output", "missing/x.pb", "{pid}"), 1, "missing/x.pb: .*--output FILE"),
        (("--output", "kept.pb", "{pid}"), 1, "kept.pb .*--force"),
        (("4194999",), 2, "no process 4194999: .*pgrep"),
        (("{other}",), 2, "tsmalloc run -- PROGRAM"),
    ],
)
def test_bad_input(server, tmp_path, words, status, said):
    kept = tmp_path / "kept.pb"
    kept.write_text("kept")
    filled = [word.format(pid=server.pid, other=os.getpid()) for word in words]
    took = take(tmp_path, *filled)
    assert took.returncode == status
    assert re.fullmatch(r"tsmalloc: [^\n]*\n", took.stderr), took.stderr
    assert re.search(said, took.stderr), took.stderr
    assert server.poll() is None
    assert kept.read_text() == "kept"


def test_force_overwrites(server, tmp_path):
    kept = tmp_path / "kept.pb"
    kept.write_text("kept")
    sampling = ("--seconds", 1, "--interval", "16K")
    assert take(tmp_path, "--force", "--output", kept, *sampling, server.pid).returncode == 0
    assert read(kept).rows


# --- where its files are --------------------------------------------------------------------------


def names_and_notes(profile):
    found = look_up(profile)
    sites = gather(profile, Stacks(profile, found), "function", "inuse").sites
    return {site.frame.function: site for site in sites}, found.notes


@pytest.mark.parametrize("build_id", ["sha1", "none"])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    "name", [b"server", b"caf\xe9 x", b"two\nlines", b"old (deleted)"], ids=["", "bytes", "n", "d"]
)
def test_a_binary_that_is_gone_has_names_while_its_process_runs(tmp_path, build_id, replaced, name):
    """But not afterwards: the file in its place is another build."""
    copy = tmp_path / os.fsdecode(name)
    flags = ["-g", "-O2", "-fno-optimize-sibling-calls", "-pthread", f"-Wl,--build-id={build_id}"]
    subprocess.run(["gcc", *flags, SOURCE, "-o", copy], check=True)
    with running(copy, tmp_path, "start", "serve") as server:
        copy.unlink()
        time.sleep(0.3)
        if replaced:
            shutil.copy("/bin/sleep", copy)
        profile = taken(tmp_path, "take", server.pid)
        sites, notes = names_and_notes(profile)
        assert sites["leaks"].frame.file == str(SOURCE), notes
        files = {each.mapping.file for each in profile.locations.values() if each.mapping}
        assert str(copy) in files
    sites, notes = names_and_notes(profile)
    assert "leaks" not in sites
    reason = "instead of|has changed since the program began" if replaced else "does not exist"
    assert any(re.search(reason, note) for note in notes), notes


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces take root to make")
def test_names_of_a_process_in_other_namespaces(program, tmp_path):
    """Its binary and JIT names are in a file system not mounted here; its process ID differs."""
    script = (
        'mount -t tmpfs none /tmp && cp "$0" /tmp/hidden && '
        'echo "1000 10 jitted" >/tmp/perf-1.map && exec /tmp/hidden start serve'
    )
    with program.open("rb") as kept, subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script,
         f"/proc/self/fd/{kept.fileno()}"],
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[kept.fileno()],
        text=True,
    ) as outer:  # fmt: skip
        try:
            if outer.stdout.readline() != "ready\n":
                pytest.skip(f"no namespaces may be made here: {outer.stderr.read()}")
            (pid,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            time.sleep(0.5)  # it keeps leaking
            profile = taken(tmp_path, "take", pid)
            sites, notes = names_and_notes(profile)
            assert sites["leaks"].frame.file == str(SOURCE), notes
            path, _ = Origin(profile).perf_map()
            assert path.read_text() == "1000 10 jitted\n"
        finally:
            outer.kill()


# --- sampling that began late ---------------------------------------------------------------------


@pytest.mark.parametrize("by_itself", [True, False])
def test_memory_from_before_the_sampling_is_told(program, tmp_path, by_itself):
    """Whether the process writes the profile, or it is read from outside."""
    held = sum(size for size, _ in EXACT.values())
    words = ("everything", "sleep", "start", "pin", *(() if by_itself else ("wait",)))
    if by_itself:
        profile = written(program, tmp_path, *words[:-1], "write", PROFILE="off")
    else:
        with running(program, tmp_path, *words) as process:
            profile = taken(tmp_path, "take", process.pid)
    assert 1.0 <= profile.began_after < 30.0
    assert profile.in_use > held
    sampled = sum(row.live_space for row in profile.rows)
    if by_itself:
        assert held <= profile.in_use <= 1.3 * held + 2e6
        return
    assert held <= text.uncovered(profile) <= 1.3 * held + sampled / 2
    (said,) = text.coverage(profile)
    assert "in use were allocated earlier" in said
    shown = text.shown(
        profile,
        gather(profile, Stacks(profile, look_up(profile)), "function", "inuse"),
        "function", "inuse", 5, [],
    )  # fmt: skip
    assert said in " ".join(shown.split())


def test_pauses_of_the_sampling_are_told(program, tmp_path):
    with running(program, tmp_path, "serve", PROFILE="16K") as server:
        for value in ("off", "16K"):
            told("set", server.pid, f"PROFILE={value}")
            time.sleep(1.5)
        profile = taken(tmp_path, "take", server.pid)
    assert profile.began_after < 0.5
    assert 1.2 < profile.paused < 10
    (said,) = text.coverage(profile)
    assert ", except for 1." in said
    assert text.uncovered(profile) > 5e6  # of about 15 MB


def test_sampling_from_the_start_covers_all(program, tmp_path):
    profile = written(program, tmp_path, "everything", PROFILE="64K")
    assert profile.began_after < 1.0
    assert text.coverage(profile) == []


# --- a program, to its end ------------------------------------------------------------------------


def to_the_end(folder, *command, before):
    words = ("profile", "take", "--interval", "1", "--output", f"{folder}/", "--")
    line = ("env", "--default-signal", *before, paths.tool("tsmalloc"), *words, *command)
    return list(map(str, line))


def taken_to_the_end(folder, *command, before=()):
    return ran(
        *to_the_end(folder, *command, before=before), env=paths.environment_of_native_programs()
    )


ENDS = {"_exit": 3} | {
    f"raise-{int(number)}": 128 + number
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGKILL)
}


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("inner", [False, True])
def test_a_profile_is_left_however_the_program_ends(program, tmp_path, ending, inner):
    """The program itself, or its child."""
    line = ["sh", "-c", '"$0" "$@"; exit $?'] if inner else []
    done = taken_to_the_end(tmp_path, *line, program, "everything", "vfork", ending)
    assert done.returncode == ENDS[ending], done.stderr
    named = [read(path) for path in tmp_path.glob("*.pb")]
    (profile,) = [each for each in named if each.comment("command") == "profiled_progra"]
    assert profile.comment("kind") == "exit"
    sites = sites_of(profile)
    assert [round(sites[name].flat.total) for name in EXACT] == [size for size, _ in EXACT.values()]


def test_threads_that_outlive_the_first_one_are_in_the_profile(program, tmp_path):
    done = taken_to_the_end(tmp_path, program, "everything", "end-first-thread")
    assert done.returncode == 5, done.stderr
    assert sites_of(profile_of(tmp_path))["keeps_small"].objects.total >= 2 * MANY


@contextlib.contextmanager
def taking_to_the_end(folder, *command, before=()):
    """In a process group of its own, as a shell would start it."""
    with subprocess.Popen(
        to_the_end(folder, *command, before=before),
        env=paths.environment_of_native_programs(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as taking:
        assert taking.stdout.readline() == "ready\n"
        yield taking
        taking.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("by_terminal", [True, False])
def test_signals_end_the_program_and_leave_its_profile(program, tmp_path, number, by_terminal):
    if not by_terminal and number in (signal.SIGINT, signal.SIGQUIT):
        pytest.skip("at the command alone, these mean nothing")
    with taking_to_the_end(tmp_path, program, "everything", "wait") as taking:
        (os.killpg if by_terminal else os.kill)(taking.pid, number)
        assert taking.wait(timeout=30) == 128 + number
    assert round(sites_of(profile_of(tmp_path))["keeps_small"].flat.total) == MANY * 100


@pytest.mark.parametrize("before", [(), ("timeout", "1")])
def test_the_program_gets_each_signal_once(program, tmp_path, before):
    """timeout sends SIGTERM to the command, and also to its process group."""
    with taking_to_the_end(tmp_path, program, "count-terms", before=before) as taking:
        if not before:
            taking.terminate()
        assert taking.stdout.read() == "1\n"
        assert taking.wait(timeout=30) == (124 if before else 0)


def test_what_goes_on_in_the_background_is_named(program, tmp_path):
    done = taken_to_the_end(tmp_path, program, "everything", "daemon")
    named = re.search(r"tsmalloc profile (\d+) reads its profile", done.stderr)
    assert (done.returncode, named is not None) == (0, True), done.stderr
    try:
        took = take(tmp_path, "take", "--output", tmp_path / "daemon", named[1])
        assert took.returncode == 0, took.stderr
    finally:
        os.kill(int(named[1]), signal.SIGKILL)
    assert round(sites_of(read(tmp_path / "daemon"))["keeps_small"].flat.total) == MANY * 100


def test_without_the_right_to_trace_the_program_runs_all_the_same(program, tmp_path, build):
    """It says what is lost, and what to do; the profile of a program that exits exists."""
    refuse = build("refuse.c", REFUSES, "-DREFUSED=SYS_ptrace")
    done = taken_to_the_end(tmp_path, program, "everything", before=[refuse])
    assert done.returncode == 0
    assert re.fullmatch(r"tsmalloc: cannot trace the program [^\n]*\n", done.stderr), done.stderr
    assert round(sites_of(profile_of(tmp_path))["keeps_small"].flat.total) == MANY * 100
    done = taken_to_the_end(tmp_path / "none", program, "_exit", before=[refuse])
    assert done.returncode == 3
    assert not list((tmp_path / "none").glob("*.pb"))


def test_the_front_door_runs_a_program_without_the_lab(program, tmp_path):
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    shutil.copy(paths.tool("tsmalloc"), prefix / "bin" / "tsmalloc")
    library = paths.library("libtsmalloc.so").resolve()
    for folder in ("lib", "lib/x86_64-linux-gnu", "lib64"):
        (prefix / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(library, prefix / folder / "libtsmalloc.so.0")

    def front(*words):
        command = (prefix / "bin" / "tsmalloc", "profile", *words)
        return ran(*command, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path)

    folder = tmp_path / "profiles"
    done = front("--interval", "1", "--output", f"{folder}/", "--", program, "everything")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    assert round(sites_of(profile_of(folder))["keeps_small"].flat.total) == MANY * 100
    done = front("--output", folder / "a" / "b", "--", program, "everything")
    assert (done.returncode, done.stdout) == (1, "")
    mentions(done.stderr, f"{folder / 'a'}", "--output")
    (tmp_path / "a_file").touch()
    done = front("--output", f"{tmp_path / 'a_file'}/", "--", program, "everything")
    assert (done.returncode, done.stdout) == (1, "")
    mentions(done.stderr, f"{tmp_path / 'a_file'}", "--output DIR/")
    done = front("--interval", "1", "--output", tmp_path / "one.pb", "--", program, "everything")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    assert sites_of(profile_of(tmp_path, "one.pb"))["keeps_small"].flat.samples == MANY
    away = 'cd / && exec "$0" everything'
    done = front("--interval", "1", "--output", "two.pb", "--", "sh", "-c", away, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    assert sites_of(profile_of(tmp_path, "two.pb"))["keeps_small"].flat.samples == MANY
    done = front("show", folder)
    assert done.returncode != 0
    mentions(done.stderr, "profile show", "tsmalloc-lab_*.deb")
