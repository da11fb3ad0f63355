"""The table of options: allocators know all of them, and each is set as the allocator expects."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refused
from shim_programs import installed

from tsmlab import allocators
from tsmlab.allocators import Allocator
from tsmlab.tune_options import Option, Setting, configured, environment, options_for, read_table

TABLE = read_table()
JEMALLOC = TABLE.forms["jemalloc"]


def every_setting(name):
    options, _ = options_for(installed(name), [])
    return [Setting(option, value) for option in options for value in option.values]


def errors_under(name, setting, **more):
    allocator = configured(installed(name), [setting], "tuned")
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | dict(allocator.env) | more
    if allocator.path is not None:
        env["LD_PRELOAD"] = str(allocator.path)
    done = subprocess.run(["/bin/true"], env=env, capture_output=True, text=True, check=False)
    return done.stderr + (f"status {done.returncode}" if done.returncode else "")


def test_jemalloc_takes_every_value():
    """jemalloc reports unknown options, and aborts if told to."""
    installed("jemalloc")
    for setting in every_setting("jemalloc"):
        assert errors_under("jemalloc", setting) == "", setting.text
    bad = Setting(replace(JEMALLOC, name="no_such_option", values=("1",)), "1")
    assert "no_such_option" in errors_under("jemalloc", bad)


def test_glibc_has_every_tunable_within_its_bounds():
    loader = next(Path("/").glob("lib64/ld-linux*.so.2"), None)
    if loader is None:
        pytest.skip("no loader of glibc here")
    text = subprocess.run([loader, "--list-tunables"], capture_output=True, text=True, check=False)
    bounds = {
        name: (int(low, 0), int(high, 0))
        for name, low, high in re.findall(r"(\S+): \S+ \(min: (\S+), max: (\S+)\)", text.stdout)
    }
    for setting in every_setting("glibc"):
        low, high = bounds[setting.option.name]
        assert low <= int(setting.value) <= high, setting.text


def test_tsmalloc_takes_every_value():
    for setting in every_setting("tsmalloc"):
        shown = errors_under("tsmalloc", setting, TSMALLOC_SHOW="1")
        assert f"{setting.text} (environment;" in shown


@pytest.mark.parametrize("name", ["mimalloc", "tcmalloc"])
def test_what_a_library_does_not_know_is_left_out(name):
    allocator = installed(name)
    options, unknown = options_for(allocator, [])
    assert options
    assert len(options) + len(unknown) == len(TABLE.options[name])
    content = allocator.path.read_bytes().lower()
    for option in options:
        assert option.name.partition("_")[2].lower().encode() in content


def test_a_library_of_something_else_knows_none(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"nothing")
    stranger = Allocator("jemalloc", library, "user", "?")
    with refused("jemalloc"):
        options_for(stranger, [])
    options, unknown = options_for(stranger, ["narenas=1,2"])
    assert options == (replace(JEMALLOC, name="narenas", values=("1", "2")),)
    assert {"dirty_decay_ms", "narenas"} <= set(unknown)


def test_lists_are_written_as_their_allocator_reads_them():
    def set_to(form, name, value):
        return Setting(replace(form, name=name, values=(value,)), value)

    pair = (set_to(JEMALLOC, "narenas", "1"), set_to(JEMALLOC, "thp", "never"))
    tunable = set_to(TABLE.forms["glibc"], "glibc.malloc.arena_max", "1")
    alone = set_to(Option("A", ("1",), "A"), "A", "1")
    for settings, before, after in (
        (pair, {}, {"MALLOC_CONF": "narenas:1,thp:never"}),
        (pair, {"MALLOC_CONF": "narenas:9"}, {"MALLOC_CONF": "narenas:9,narenas:1,thp:never"}),
        ([tunable], {}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}),
        ([alone], {"A": "7"}, {"A": "1"}),
    ):
        assert environment(settings, before) == after


def test_what_is_set_already_is_kept(monkeypatch):
    monkeypatch.setenv("MALLOC_CONF", "narenas:9")
    setting = Setting(replace(JEMALLOC, name="thp", values=("never",)), "never")
    plain = Allocator("jemalloc", None, "system", "5")
    assert configured(plain, [setting], "x").env == {"MALLOC_CONF": "narenas:9,thp:never"}
    own = replace(plain, name="mine", env={"MALLOC_CONF": "retain:false", "B": "2"})
    expected = {"MALLOC_CONF": "retain:false,thp:never", "B": "2"}
    assert configured(own, [setting], "x").env == expected
    assert configured(own, [], "base").env == own.env


def test_the_users_own_replace_and_add():
    glibc = allocators.glibc()
    options, _ = options_for(glibc, ["glibc.malloc.arena_max=3,4", "MY_OPTION=a"])
    by_name = {option.name: option for option in options}
    assert by_name["glibc.malloc.arena_max"].values == ("3", "4")
    assert by_name["MY_OPTION"].variable == "MY_OPTION"
    assert "glibc.malloc.top_pad" in by_name
    only, _ = options_for(glibc, ["MY_OPTION=a"], only_given=True)
    assert [option.name for option in only] == ["MY_OPTION"]
    later, _ = options_for(Allocator("jemalloc-5.4.0", None, "user", "?"), [])
    assert {option.variable for option in later} == {"MALLOC_CONF"}


def test_what_cannot_be_tried_is_named():
    for given, words in (
        (["NAME"], "cannot parse"),
        (["=1"], "cannot parse"),
        (["NAME="], "cannot parse"),
        (["NAME=1,,2"], "cannot parse"),
        (["A=1", "A=2"], "A is given twice"),
        (["narenas=1"], "narenas"),
        ([], "no known options for mine"),
    ):
        with refused(words):
            options_for(Allocator("mine", None, "user", "?"), given)
