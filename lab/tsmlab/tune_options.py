"""The options of allocators: names, values worth trying, and how to set them."""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError

TABLE = Path(__file__).parent / "tune.toml"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_VERSION = re.compile(r"-\d.*")


@dataclass(frozen=True)
class Option:
    """variable: the environment variable. It holds only this option, or a list of options separated
    by `separator`, each written `name`, `equals`, value."""

    name: str
    values: tuple[str, ...]
    variable: str
    separator: str = ""
    equals: str = "="


@dataclass(frozen=True)
class Setting:
    option: Option
    value: str

    @property
    def text(self) -> str:
        return f"{self.option.name}{self.option.equals}{self.value}"


@dataclass(frozen=True)
class OptionTable:
    """The tables of all allocators, by their names. forms: for those that have one variable for a
    list of options, an option of that list without name and values."""

    forms: Mapping[str, Option]
    options: Mapping[str, tuple[Option, ...]]


def read_table() -> OptionTable:
    forms: dict[str, Option] = {}
    options = {}
    for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["allocator"]:
        owner = entry["name"]
        if "variable" in entry:
            forms[owner] = Option("", (), entry["variable"], entry["separator"], entry["equals"])
        known = entry["options"].items()
        options[owner] = tuple(_option(n, tuple(values), forms.get(owner)) for n, values in known)
    return OptionTable(forms, options)


def options_for(
    allocator: Allocator, given: Sequence[str], only_given: bool = False
) -> tuple[tuple[Option, ...], list[str]]:
    """The options to try, and the names of those that this library does not have. given: the user's
    own, which replace those of the same name."""
    table = read_table()
    owner = _VERSION.sub("", allocator.name)
    own = [_parse(text, table.forms.get(owner)) for text in given]
    names = [option.name for option in own]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"--option {twice} is given twice.", f"Give it once: --option {twice}=V1,V2"
        )
    listed = [] if only_given else [o for o in table.options.get(owner, ()) if o.name not in names]
    unknown = _unknown_to(allocator, listed)
    usable = (*own, *(option for option in listed if option.name not in unknown))
    if not usable:
        raise UserError(
            f"no known options for {allocator.name}.",
            "Give some: --option VARIABLE=VALUE1,VALUE2.",
        )
    return usable, [*unknown, *_unknown_to(allocator, own)]


def environment(settings: Iterable[Setting], given: Mapping[str, str]) -> dict[str, str]:
    """The variables for these settings, where `given` is already set. If an option appears twice,
    the last one counts, in every list."""
    variables: dict[str, str] = {}
    for setting in settings:
        option = setting.option
        if not option.separator:
            variables[option.variable] = setting.value
            continue
        before = variables.get(option.variable, given.get(option.variable, ""))
        variables[option.variable] = option.separator.join(filter(None, (before, setting.text)))
    return variables


def configured(allocator: Allocator, settings: Sequence[Setting], name: str) -> Allocator:
    variables = environment(settings, {**os.environ, **allocator.env})
    return replace(allocator, name=name, env={**allocator.env, **variables})


def _parse(text: str, form: Option | None) -> Option:
    """NAME=V1,V2: a variable, or an option of the allocator's list."""
    name, equals, rest = text.partition("=")
    values = tuple(dict.fromkeys(value.strip() for value in rest.split(",")))
    if not equals or not name.strip() or not all(values):
        raise UserError(
            f"cannot parse --option {text!r}.",
            "Give a name and its values: --option MIMALLOC_PURGE_DELAY=0,100",
        )
    return _option(name, values, form)


def _option(name: str, values: tuple[str, ...], form: Option | None) -> Option:
    if _VARIABLE.fullmatch(name):
        return Option(name, values, name)
    if form is None:
        raise UserError(
            f"--option: {name} is not an environment variable.",
            "Variables are in upper case: --option MIMALLOC_PURGE_DELAY=0,100",
        )
    return replace(form, name=name, values=values)


def _unknown_to(allocator: Allocator, options: Sequence[Option]) -> list[str]:
    """The names that do not occur in the library; a variable's prefix may be added at run time. The
    C library reads its own in the loader, whose file is not checked."""
    if allocator.path is None:
        return []
    content = allocator.path.read_bytes().lower()
    own = {o.name: o.name.partition("_")[2] if o.variable == o.name else o.name for o in options}
    return [name for name, known in own.items() if known.lower().encode() not in content]
