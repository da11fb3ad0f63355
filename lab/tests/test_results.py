"""The JSON form: it is complete, survives a round trip, and rejects unknown contents."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, World, typical
from refusals import refused

from tsmlab import records, texts
from tsmlab.export import Target, check_targets
from tsmlab.records import save, to_json, with_checksum, write_atomically
from tsmlab.results import SCHEMA
from tsmlab.study import Study, from_json

ROOT = Path(__file__).resolve().parents[2]


def kept(**changes):
    return Study.of("compare", [typical(**changes)])


def test_a_study_survives_the_round_trip_with_all_its_samples():
    study = kept()
    assert from_json(to_json(study)) == study
    whole = json.loads(to_json(study))
    assert whole["schema"] == SCHEMA
    data = whole["parts"][0]
    # The probe; a warm-up round and 12 measured ones of 6 runs, minus those of "crash" from its
    # third run on.
    assert len(data["samples"]) == 1 + 13 * 6 - 11
    assert all(s["measurement"]["schema"] == "tsmalloc-measure/1" for s in data["samples"])
    crashed = [s for s in data["samples"] if s["failure"]]
    assert [s["allocator"] for s in crashed] == ["crash", "crash"]
    assert crashed[0]["failure"]["stderr_tail"].endswith("free(): invalid pointer")
    before = from_json(json.dumps(whole))
    whole["new"] = data["machine"]["new"] = data["samples"][0]["new"] = 1
    assert from_json(json.dumps(with_checksum(whole))) == before


def test_an_interrupted_and_empty_one_does_too():
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    study = Study.of("compare", [World.comparison(behaviours, interrupt_at_run=2)])
    assert from_json(to_json(study)) == study


def test_the_csv_has_a_line_for_every_run():
    absent = {"errno": 12, "message": 'Cannot allocate, "memory"\n'}
    behaviours = {"glibc": Behaviour(), "a": Behaviour(spawn_error=absent)}
    comparison = World.comparison(behaviours)
    lines = list(csv.DictReader(io.StringIO(texts.to_csv(Study.of("compare", [comparison])))))
    assert {line["phase"] for line in lines} == {"probe", "warmup", "measured"}
    for line, sample in zip(lines, comparison.samples, strict=True):
        assert line["allocator"] == sample.allocator
        assert line["time_seconds"] == str(sample.values.get("time_seconds", ""))
        assert line["failure"] == (sample.failure.kind if sample.failure else "")
        assert ("memory" in line["failure_text"]) == (sample.allocator == "a")


def test_force_allows_overwriting_but_nothing_else(tmp_path):
    (tmp_path / "there").write_text("old")
    check_targets([Target("csv", tmp_path / "there")], force=True)
    targets = [Target("csv", tmp_path / "x"), Target("json", tmp_path / "x")]
    with refused("same file"):
        check_targets(targets, force=True)
    devices = [Target("csv", Path("/dev/null")), Target("json", Path("/dev/null"))]
    check_targets(devices, force=False)


def test_a_file_that_changed_meanwhile_is_told():
    study = kept()
    changed = replace(study, changed=["/usr/lib/liba.so"])
    (warning,) = (warning for warning in changed.warnings if warning not in study.warnings)
    assert warning.code == "changed"
    assert "/usr/lib/liba.so" in texts.markdown(changed)


def test_names_of_any_bytes_can_be_saved(tmp_path):
    program = {"command": ("./caf\udce9", "\u00e9")}
    comparison = World.comparison({"glibc": Behaviour()}, program=program)
    path = save(Study.of("compare", [comparison]), [tmp_path])
    assert from_json(path.read_text()).comparison.command == ["./caf\udce9", "\u00e9"]


def broken(data, path, value):
    *parents, last = path.split(".")
    place = data
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("machine.kernel", None, "'kernel'"),
        ("settings.output_checked", 1, "type bool"),
        ("settings.seed", True, "type int"),
        ("samples.0.phase", "idle", "'probe', 'warmup', 'measured'"),
        ("stop", "over", "type dict"),
        ("analysis.rows", {}, "type list"),
        ("samples.0.values.time_seconds", math.inf, "inf"),
        ("analysis.rows.1.metrics.time_seconds.median", math.nan, "nan"),
    ],
)
def test_damage_is_named(path, value, message):
    data = json.loads(to_json(kept()))
    broken(data["parts"][0], path, value)
    with refused("damaged", "old.json", message):
        records.from_json(Study, SCHEMA, json.dumps(data), "old.json", "", has_checksum=False)


@pytest.mark.parametrize(
    ("path", "value"),
    [("parts.0.analysis.rows", []), ("verb", "bench"), ("content_sha256", None)],
)
def test_what_was_edited_is_refused_whatever_fits(path, value):
    study = kept()
    data = json.loads(to_json(study))
    assert from_json(json.dumps(data, sort_keys=True, indent=7)) == study
    broken(data, path, value)
    with refused("damaged", "old.json"):
        from_json(json.dumps(data), "old.json")


def field_names(value):
    if isinstance(value, list):
        return set().union(*map(field_names, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(field_names, value.values()))


def test_the_page_on_the_schema_names_every_field():
    page = (ROOT / "docs" / "formats" / "results.md").read_text(encoding="utf-8")
    data = json.loads(to_json(kept()))
    for sample in data["parts"][0]["samples"]:
        del sample["measurement"]  # the native tool's own schema
    fields = field_names(data)
    assert len(fields) > 90
    assert not {name for name in fields if f"`{name}`" not in page}


def test_a_file_is_replaced_at_once_and_a_link_stays_one(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    assert {p.name for p in tmp_path.iterdir()} == {"target", "link"}


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def no_space(_file, _target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_results_are_kept_when_the_working_folder_is_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert save(kept()).parent == tmp_path / "tsmalloc" / "results"
