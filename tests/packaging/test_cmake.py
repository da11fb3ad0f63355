"""`cmake --install`: what is in the prefix, and how projects build with it."""

from __future__ import annotations

from pathlib import Path

from package_commands import ROOT

from tsmlab import __version__


def test_the_lab_s_home_leads_to_the_libraries(prefix: Path) -> None:
    package = prefix / "share/tsmalloc/python/tsmlab"
    home = package / "home"
    assert home.readlink() == Path("../../../../lib/tsmalloc")
    for name in ("libtsmalloc", "libtsmalloc-secure"):
        served = (home / "lib" / f"{name}.so").resolve()
        assert served == (prefix / "lib" / f"{name}.so.0").resolve()
        assert served.is_file()
    for program in ("measure", "record", "bench-server"):
        assert (home / "bin" / program).stat().st_mode & 0o111
    assert (home / "lib/counted/libtsmalloc.so").is_file()
    sources = {path.name for path in (ROOT / "experiments").glob("*.toml")}
    assert {path.name for path in (home / "experiments").iterdir()} == sources
    assert len(list((home / "traces").iterdir())) == len(list((ROOT / "traces").glob("*.tstrace")))
    assert (home / "bench/workloads.toml").is_file()
    assert (package / "report/style.css").is_file()
    assert (package / "VERSION").read_text() == f"{__version__}\n"
