"""Each verb in a prefix of `cmake --install`, and in the package as the wheel contains it.

test_wheel.py tests the same uses in the wheel itself, and test_debian.py in Debian packages.
"""

import shlex
import site
import sys

import pytest
from package_commands import ROOT, run
from prompt import ran
from verbs import USES, check_use

# What the lab needs comes from this environment.
DEPENDENCIES = site.getsitepackages()[0]


@pytest.fixture(scope="module")
def as_a_wheel(prefix, tmp_path_factory):
    """Its directory of commands, in a path with a space, from which nothing can be preloaded."""
    folder = tmp_path_factory.mktemp("wheel") / "an environment"
    (folder / "bin").mkdir(parents=True)
    run(ROOT / "packaging/wheel/stage", prefix, folder)
    command = folder / "bin/tsmalloc"
    python = shlex.quote(sys.executable)
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={folder!s} exec {python} -m tsmlab "$@"\n'.replace(
            str(folder), shlex.quote(str(folder))
        )
    )
    command.chmod(0o755)
    return folder / "bin"


def has_other_python():
    """Whether Debian's python3 cannot use this environment's packages."""
    asked = ["/usr/bin/python3", "-c", "import sys; print(sys.version_info[:2])"]
    told = ran(*asked).stdout
    return told.strip() != str(sys.version_info[:2])


@pytest.mark.parametrize("way", ["prefix", "wheel"])
@pytest.mark.parametrize(
    "verb", [v if u.is_quick else pytest.param(v, marks=pytest.mark.long) for v, u in USES.items()]
)
def test_each_verb_works(way, verb, request, tmp_path):
    variables = {"HOME": str(tmp_path)}
    if way == "wheel":
        commands = request.getfixturevalue("as_a_wheel")
    elif has_other_python():
        pytest.skip("/usr/bin/python3 is of another version than this environment's")
    else:
        commands = request.getfixturevalue("prefix") / "bin"
        variables["PYTHONPATH"] = DEPENDENCIES
    variables["PATH"] = f"{commands}:/usr/local/bin:/usr/bin:/bin"
    check_use(verb, lambda script: run("sh", "-euc", script, cwd=tmp_path, **variables))
