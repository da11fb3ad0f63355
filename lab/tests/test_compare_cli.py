"""`tsmalloc compare` at the command line: real programs, libraries and signals. Each error has a
clear message, a remedy and the right exit status.
"""

import contextlib
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import prompt
import pytest
from prompt import kept, processes, stop_after
from refusals import mentions

from tsmlab import study

MISDEEDS = {
    "crash": "abort()",
    "hang": "pause()",
    "quit": "_exit(9)",
    "garble": 'printf("surprise\\n")',
}


@pytest.fixture
def misdeeds(misbehaving):
    pairs = (("--allocator", f"{name}={misbehaving(does)}") for name, does in MISDEEDS.items())
    return [word for pair in pairs for word in pair]


@pytest.fixture
def compare(tsmalloc):
    return partial(tsmalloc, "compare")


ONCE = ("-a", "glibc", "-r", "1")


def saved(tmp_path):
    return sorted((tmp_path / "state" / "tsmalloc" / "results").glob("*.json"))


# --- the main job --------------------------------------------------------------------------------


def test_a_plain_comparison_prints_a_table_and_keeps_its_results(work, compare, tmp_path):
    done = compare("-a", "glibc,lock-best", "-r", "3", "--", work)
    assert re.search(r"\d +glibc .* reference", done.stdout)
    assert re.search(r"\d +lock-best ", done.stdout)
    assert re.search(r"(?m)^fastest ", done.stdout)
    assert "sum" not in done.stdout + done.stderr
    (file,) = saved(tmp_path)
    assert str(file) in done.stderr
    whole = json.loads(file.read_text())
    assert (whole["schema"], whole["verb"]) == ("tsmalloc-study/1", "compare")
    (data,) = whole["parts"]
    assert data["intercepted_calls"] > 20_000
    lock_best = next(a for a in data["allocators"] if a["name"] == "lock-best")
    assert re.fullmatch(r"[0-9a-f]{64}", lock_best["sha256"])
    assert sum(s["phase"] == "measured" for s in data["samples"]) == 9
    preloaded = [
        s["measurement"]["preloaded"] for s in data["samples"] if s["allocator"] == "lock-best"
    ]
    assert all(p["mapped"] is not False for libraries in preloaded for p in libraries)


def test_input_that_the_program_does_not_see_is_told(compare, environment, tmp_path):
    (tmp_path / "words").write_text("a b c\n")
    program = ("--", "perl", "-ne", "1")
    with (tmp_path / "words").open() as file:
        words = ("compare", *ONCE, "--no-doctor", *program)
        done = prompt.run_alone(*words, env=environment, stdin=file)
    assert "input is empty" in done.stdout
    done = compare(*ONCE, "-v", "--input", tmp_path / "words", *program)
    assert "input is empty" not in done.stdout + done.stderr
    assert "remedy: " in done.stderr


def test_exports_are_written_with_the_programs_own_number(work, compare, tmp_path):
    files = {name: tmp_path / f"r.{name}" for name in ("json", "csv", "markdown")}
    exports = [f"--export-{name}={file}" for name, file in files.items()]
    compare("-a", "glibc", "-r", "2", "--metric", r"sum=sum (\d+):higher", *exports, "--", work)
    found = study.from_json(files["json"].read_text()).comparison
    assert found.command == [str(work)]
    assert found.analysis.primary_metric == "custom"
    assert len({sample.values["custom"] for sample in found.samples}) == 1
    assert len(files["csv"].read_text().splitlines()) == 1 + 1 + 2 + 4
    assert files["markdown"].read_text().count("\n| ") >= 1


def test_a_sweep_runs_the_program_at_every_point(compare, tmp_path):
    line = "print join ',', map { 'x' x $_ } 1..{n}; print '{shape}'"
    swept = ("-P", "n", "100", "300", "-D", "200", "-L", "shape", "a,b")
    table = tmp_path / "table.md"
    words = ("-a", "glibc,lock-best", "-r", "2", *swept, "--export-markdown", table)
    done = compare(*words, "--json", "-q", "--", "perl", "-e", line)
    found = study.from_json(done.stdout).comparison
    assert [tuple(point.values.values()) for point in found.points] == [
        *((100, "a"), (100, "b"), (300, "a"), (300, "b"))
    ]
    assert sum(sample.phase == "measured" for sample in found.samples) == 2 * 4 * 3
    assert len({s.output_sha256 for s in found.samples}) == 4
    assert not found.failed_rows
    assert "time by n, shape: medians" in table.read_text()


def test_a_name_that_is_no_text(work, environment, tmp_path):
    program = tmp_path / os.fsdecode(b"bad\xff")
    program.write_bytes(work.read_bytes())
    program.chmod(0o755)
    words = ("compare", *ONCE, "--export-markdown", tmp_path / "r.md", "--", program)
    prompt.run_alone(*words, env=environment, errors="surrogateescape")
    assert "glibc" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "2>/dev/full"])
def test_closed_streams_cost_nothing_else(work, environment, tmp_path, closed):
    line = shlex.join([sys.executable, "-m", "tsmlab", "compare", *ONCE, "--", str(work)])
    done = prompt.ran("sh", "-c", f"{line} {closed}", env=environment, status=0)
    assert len(saved(tmp_path)) == 1
    assert closed == ">&-" or "glibc" in done.stdout


def test_input_setup_and_cleanup(work, compare, tmp_path):
    (tmp_path / "input").write_text("x" * 1000)
    options = ["-w", "0", "--input", tmp_path / "input", "--json", "--no-doctor"]
    options += ["-p", f"echo in >> {tmp_path}/log", "-c", f"echo out >> {tmp_path}/log"]
    (data,) = json.loads(compare(*ONCE, *options, "--", work, "echo").stdout)["parts"]
    assert {s["output_bytes"] > 1000 for s in data["samples"]} == {True}
    assert (tmp_path / "log").read_text() == "in\nout\n" * 3


def test_a_dry_run_runs_nothing(compare, tmp_path):
    words = ("--dry-run", "--seed", "5", "-r", "4", "--", "touch", tmp_path / "touched")
    done = compare(*words)
    assert re.search(r"(?m)^rounds +exactly 4$", done.stdout)
    assert re.search(r"(?m)^round 1 +.*glibc.*glibc", done.stdout)
    assert done.stdout == compare(*words).stdout
    assert not (tmp_path / "touched").exists()
    assert not saved(tmp_path)


# --- failures are rows ---------------------------------------------------------------------------


def test_whatever_happens_under_one_allocator_is_a_row(work, misdeeds, compare, tmp_path):
    options = [*misdeeds, "-a", ",".join(["glibc", *MISDEEDS]), "-r", "2"]
    done = compare(*options, "--timeout", "2", "--", work, status=2)
    assert {
        row.allocator: (row.failure.kind, row.failures, row.attempts, row.gave_up)
        for row in kept(tmp_path).comparison.failed_rows
    } == {
        "crash": ("signal", 2, 2, True),
        "hang": ("timeout", 2, 2, True),
        "quit": ("exit", 2, 2, True),
        "garble": ("output", 2, 2, True),
    }
    assert set(re.findall(r"(?m)^FAILED (\w+): .*2 of 2 runs", done.stdout)) == set(MISDEEDS)
    assert re.search(r"1 +glibc .* reference", done.stdout)
    assert "hang failed" in done.stderr


def test_failures_and_other_output_can_be_accepted(work, misdeeds, compare):
    compare(*misdeeds, "-a", "glibc,quit", "-r", "1", "-i", "--", work)
    compare(*misdeeds, "-a", "glibc,garble", "-r", "1", "--ignore-output", "--", work)
    compare(*ONCE, "--expect-exit", "3", "--", work, "-1")


# --- errors with a remedy ------------------------------------------------------------------------


def test_a_failing_setup(work, compare):
    done = compare("-a", "glibc", "-p", "echo nothing there; false", "--", work, status=1)
    mentions(done.stderr, "exit 1", "nothing there", "--setup")


def test_nothing_is_overwritten_unasked(work, compare, tmp_path):
    (tmp_path / "r.csv").write_text("precious")
    options = [*ONCE, "--export-csv", tmp_path / "r.csv"]
    done = compare(*options, "--", work, status=1)
    assert "--force" in done.stderr
    assert (tmp_path / "r.csv").read_text() == "precious"
    compare(*options, "-f", "--", work)
    assert (tmp_path / "r.csv").read_text() != "precious"


def test_a_full_disk_costs_the_export_and_nothing_else(work, compare, tmp_path):
    options = ["--export-json", "/dev/full", "--export-csv", tmp_path / "r.csv"]
    done = compare(*ONCE, *options, "--", work, status=1)
    assert (tmp_path / "r.csv").stat().st_size > 0
    (file,) = saved(tmp_path)
    mentions(done.stderr, "--export-json /dev/full", "No space left on device", str(file))
    assert re.search(r"1 +glibc .* reference", done.stdout)


def test_a_state_folder_that_cannot_be_written_is_replaced(work, compare, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "tmp")}
    done = compare(*ONCE, "--", work, **elsewhere)
    (file,) = (tmp_path / "tmp").glob("*.json")
    assert str(file) in done.stderr


# --- interrupts and terminals --------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_what_was_measured(work, environment, tmp_path, number):
    arguments = ["-a", "glibc", "-w", "0", "-r", "50", "--no-doctor"]
    words = ("compare", *arguments, "--", work, "slow")
    # Under nohup these tests would pass on that SIGHUP is ignored.
    heard = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL)}
    process = prompt.start(*words, env=environment, **heard)
    stdout, stderr = stop_after(process, tmp_path, '"key":"measured', 2, number)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert re.search(r"1 +glibc .* reference", stdout)
    found = kept(tmp_path).comparison
    assert found.stop.reason == "interrupted"
    assert any(s.phase == "measured" for s in found.samples)
    assert processes(lambda folder: (folder / "exe").readlink() == work) == []
    assert "tsmalloc compare --resume\n" in stderr


def test_what_was_killed_is_gone_on_with(work, environment, tmp_path, compare):
    arguments = ["-a", "glibc,lock-best", "-w", "0", "-r", "3", "--margin", "2%", "--seed", "9"]
    words = ("compare", *arguments, "--", work, "slow")
    nowhere = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    process = prompt.start(*words, env=environment, **nowhere)
    stop_after(process, tmp_path, '"key":"measured', 3, signal.SIGKILL)
    (journal,) = (tmp_path / "state").rglob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)[1:]
    before = [json.loads(line) for line in lines if line.endswith(b"\n")]
    before = [line["value"] for line in before if line["key"].startswith("measured")]
    assert saved(tmp_path) == []
    assert "--runs" in compare("--resume", "-r", "9", status=1).stderr
    compare("--resume", "--export-csv", tmp_path / "runs.csv")
    (file,) = saved(tmp_path)
    (data,) = json.loads(file.read_text())["parts"]
    assert (data["settings"]["seed"], data["settings"]["margin"]) == (9, 0.02)
    assert data["stop"]["reason"] == "runs"
    measured = [s for s in data["samples"] if s["phase"] == "measured"]
    assert (len(measured), measured[: len(before)]) == (9, before)
    assert (tmp_path / "runs.csv").read_text().count("\n") == 1 + len(data["samples"])
    assert not journal.exists()
    assert "no journal" in compare("--resume", status=1).stderr


def test_what_was_begun_with_another_script_is_not_gone_on_with(environment, tmp_path, compare):
    script = tmp_path / "job.py"
    script.write_text("x = [bytes(1000) for i in range(9000)]\nimport time; time.sleep(0.2)\n")
    exported = tmp_path / "runs.json"
    words = ("compare", "-a", "glibc", "-w", "0", "-r", "90", "--export-json", exported)
    process = prompt.start(*words, "--", sys.executable, script, env=environment)
    _, stderr = stop_after(process, tmp_path, '"key":"measured', 1)
    assert "tsmalloc compare --resume --force\n" in stderr, stderr
    script.write_text("x = 1\n")
    assert str(script) in compare("--resume", "--force", status=1).stderr


def test_ctrl_c_on_a_terminal_ends_everything(work, environment, tmp_path):
    """The terminal sends the signal to the whole foreground group, not just to the lab."""
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = ["-a", "glibc", "-w", "0", "-r", "50", "--no-doctor"]
        words = ("-m", "tsmlab", "compare", *arguments, "--", str(work), "slow")
        os.execvpe(sys.executable, (sys.executable, *words), environment)
    shown = read_until(terminal, "preflight", seconds=20.0)
    shown += read_until(terminal, "\0never", seconds=3.0)
    os.write(terminal, b"\x03")
    shown += read_until(terminal, "\0never", seconds=20.0)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130, shown
    mentions(shown, "\x1b[", "round", "interrupted")
    assert len(saved(tmp_path)) == 1
    assert processes(lambda folder: (folder / "exe").readlink() == work) == []


def read_until(terminal, text, seconds):
    """The terminal's output until the text appears, the time is up, or the other side closes."""
    shown, end = "", time.monotonic() + seconds
    with contextlib.suppress(OSError):
        while text not in shown and (left := end - time.monotonic()) > 0:
            if not select.select([terminal], [], [], left)[0]:
                break
            shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


def test_a_reader_that_goes_away_costs_nothing(work, environment, tmp_path):
    words = ("compare", *ONCE, "--export-csv", tmp_path / "r.csv", "--", work)
    process = prompt.start(*words, env=environment)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0
    assert "Traceback" not in said
    assert (tmp_path / "r.csv").exists()
    assert len(saved(tmp_path)) == 1


def test_a_full_disk_behind_stdout_is_reported(work, environment, tmp_path):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = prompt.start("compare", *ONCE, "--", work, env=environment, stdout=full)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    mentions(said, "No space left on device", str(saved(tmp_path)[0]))
    assert "Traceback" not in said
