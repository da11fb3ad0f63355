"""dev/check_layers.py on small trees of sources with planted faults."""

import sys
from pathlib import Path

import pytest
from prompt import ran, write_files
from refusals import mentions

CHECK = Path(__file__).resolve().parents[2] / "dev" / "check_layers.py"
SOUND = {
    "base/bits.h": "#pragma once\n",
    "core/bins.h": '#include "base/bits.h"\n',
    "core/bins.cpp": '#include "core/bins.h"\n#include "core/slabs.h"\n',
    "core/slabs.h": '#include "base/bits.h"\n',
}


def check(root, files, status=1):
    """The output for a tree with these files, which must end with this status."""
    done = ran(sys.executable, CHECK, write_files(root, files), status=status)
    return done.stdout + done.stderr


def test_sound_sources_pass(tmp_path):
    assert "4 files, 0 violations" in check(tmp_path, SOUND, status=0)


def test_a_header_and_its_source_are_one_unit(tmp_path):
    # slabs.cpp -> bins.h and bins.cpp -> slabs.h is a cycle, although no file reaches itself.
    said = check(tmp_path, SOUND | {"core/slabs.cpp": '\n#include "core/bins.h"\n'})
    mentions(
        said,
        "a cycle, core/bins -> core/slabs -> core/bins",
        "src/core/bins.cpp:2 includes core/slabs",
        "src/core/slabs.cpp:2 includes core/bins",
    )
    assert said.count("a cycle") == 1


def test_a_longer_cycle_is_found_once(tmp_path):
    files = {
        "os/a.h": '#include "os/b.h"\n',
        "os/b.h": '#include "os/c.h"\n',
        "os/c.cpp": '#include "os/a.h"\n',
        "os/c.h": "",
        "os/d.h": '#include "os/a.h"\n',
    }
    said = check(tmp_path, files)
    assert "os/a -> os/b -> os/c -> os/a" in said
    assert said.count("a cycle") == 1


@pytest.mark.parametrize(
    ("folder", "lines", "status"), [("engine", 600, 0), ("engine", 601, 1), ("os", 601, 1)]
)
def test_long_files(tmp_path, folder, lines, status):
    said = check(tmp_path, {f"{folder}/long.h": "\n" * lines}, status)
    assert f"longest file: src/{folder}/long.h, {lines} lines" in said


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("engine/a.h", '#include "classic/fit.h"\n', "engine must not include classic"),
        ("core/a.h", '#include "features/guard/guard.h"\n', "core must not include features"),
        (
            "features/guard/a.h",
            '#include "features/arenas/arenas.h"\n',
            "the feature guard must not include the feature arenas",
        ),
        ("engine/a.h", '#include "b.h"\n', 'include "engine/b.h"'),
        ("engine/a.h", '#include "tsmalloc/tsmalloc.h"\n', "the public header"),
        ("engine/a.h", "#ifdef __linux__\n#endif\n", "preprocessor conditions"),
        ("extra/a.h", "", "is in no layer"),
    ],
)
def test_layers(tmp_path, name, text, words):
    mentions(check(tmp_path, {name: text}), f"src/{name}", words)


def test_no_sources_are_no_success(tmp_path):
    assert "is src/ where it should be?" in check(tmp_path, {})
