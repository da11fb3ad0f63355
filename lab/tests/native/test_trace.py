"""The program `trace`: its output, and its exit status.

The format itself is tested in C++ (trace/).
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from prompt import ran
from refusals import mentions, refused

from tsmlab import paths
from tsmlab.traces import files

FORKS = paths.data_dir() / "traces" / "forks.tstrace"


def trace(*arguments, status=0):
    return ran(paths.tool("trace"), *arguments, status=status, errors="replace")


def test_info_tells_of_processes():
    answer = json.loads(trace("info", FORKS).stdout)
    assert answer["schema"] == "tsmalloc-trace-info/2"
    assert answer["finished"] is True
    assert answer["file_bytes"] == FORKS.stat().st_size
    first, *children = answer["images"]
    assert (first["birth"], first["parent"], first["end"]) == ("root", None, "exited")
    assert first["program"].startswith("python3")
    assert [(child["birth"], child["parent"]) for child in children] == [("fork", 0)] * 4
    assert answer["events"] == sum(image["events"] for image in answer["images"])


def test_the_example_in_the_document_reads_a_trace(tmp_path):
    text = (paths.repository_root() / "docs" / "formats" / "trace.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    script = tmp_path / "example.py"
    if shutil.which("zstd") is None:
        example = example.replace('"zstd", "-dcq"', f'"{paths.tool("trace")}", "unpack"')
    script.write_text(example)
    done = ran(sys.executable, script, FORKS, status=0)
    counted = {int(a): int(b) for a, b in re.findall(r"image (\d+): (\d+) events", done.stdout)}
    assert counted == {image.number: image.events for image in files.read_whole_trace(FORKS).images}
    events = np.concatenate([e for _, image, _, e in files.chunks(FORKS) if image == 0])
    frees = int(np.count_nonzero(events["kind"] == files.FREE))
    assert f"{frees} frees" in done.stdout.splitlines()[0]


def test_unpack_is_what_zstd_makes_of_the_file():
    command = [paths.tool("trace"), "unpack", FORKS]
    unpacked = subprocess.run(command, capture_output=True, check=True).stdout
    assert unpacked.startswith(b"TSTR")
    zstd = shutil.which("zstd")
    if zstd is None:
        pytest.skip("zstd is not installed")
    assert unpacked == subprocess.run([zstd, "-dcq", FORKS], capture_output=True, check=True).stdout


@pytest.mark.parametrize("command", ["info", "unpack"])
def test_what_cannot_be_read_has_a_remedy(tmp_path, command):
    whole = FORKS.read_bytes()
    broken = {
        "foreign": b"not a trace\n" * 100,
        "empty": b"",
        "older": b"\x89TST\r\n\x1a\n old",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:-40] + bytes([whole[-40] ^ 8]) + whole[-39:],
    }
    for name, content in broken.items():
        file = tmp_path / name
        file.write_bytes(content)
        run = trace(command, file, status=1)
        assert run.stderr.count("\n") == 1
        mentions(run.stderr, str(file), "record")
        with refused(str(file)) as caught:
            if command == "info":
                files.read_whole_trace(file)
            else:
                list(files.chunks(file))
        assert "record" in caught.value.remedy
    assert "No such file" in trace(command, "/none", status=1).stderr
    assert "not a regular file" in trace(command, "/tmp", status=1).stderr


def test_usage():
    assert trace("--help").stdout.startswith("usage: trace unpack")
    for arguments in ([], ["nothing", FORKS], ["info"], ["info", FORKS, FORKS]):
        assert "usage: trace unpack" in trace(*arguments, status=2).stderr


def test_a_full_disk_is_an_error_and_a_reader_that_has_enough_is_none():
    command = [paths.tool("trace"), "unpack", FORKS]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert "No space left" in run.stderr
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
