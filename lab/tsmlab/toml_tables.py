"""TOML files written by people: experiments, suites of workloads."""

from __future__ import annotations

import difflib
import fnmatch
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, get_args

from tsmlab.errors import UserError

Part = TypeVar("Part")


def read(path: Path, what: str, remedy: str) -> tuple[dict[str, Any], bytes]:
    """A file's parsed document, and its content. what: "suite", for messages; remedy: for a file
    that cannot be read."""
    try:
        content = path.read_bytes()
        return tomllib.loads(content.decode()), content
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror}.", remedy) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}.", "Fix the syntax there.") from error


def select(patterns: Sequence[str], known: Sequence[Any], what: str, remedy: str) -> list[Any]:
    """The items whose `name` a name or a glob selects, in the order of `known`. Raises UserError
    for a pattern that selects nothing."""
    names = [each.name for each in known]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise UserError(f"no such {what}: {pattern!r}.", f"{guess(pattern, names)}{remedy}")
    return [each for each in known if any(fnmatch.fnmatchcase(each.name, p) for p in patterns)]


def guess(word: str, known: Sequence[str]) -> str:
    """A suggestion of the name that was perhaps meant, to put before a remedy; or ""."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {near[0]}? " if near else ""


class Table:
    """One table of the file: returns checked values, and reports errors with the table's place."""

    def __init__(self, where: str, table: Any, known: Sequence[str]):
        self._where = where
        if not isinstance(table, dict):
            raise self.error("it is not a table", "Write its name in [[double brackets]] above it.")
        self._table: Mapping[str, Any] = table
        self.check_keys(known)

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def check_keys(self, known: Sequence[str]) -> None:
        for key in self._table:
            if key not in known:
                raise self.error(
                    f"unknown key {key!r}", f"{guess(key, known)}Keys: {', '.join(known)}."
                )

    def check_distinct(self, what: str, names: Sequence[str]) -> None:
        for name in names:
            if names.count(name) > 1:
                raise self.error(f"two {what}s are called {name}", "Rename one of them.")

    def error(self, what: str, remedy: str) -> UserError:
        return UserError(f"{self._where}: {what}.", remedy)

    def value(
        self, key: str, fits: Callable[[Any], bool], expected: str, default: Any = None
    ) -> Any:
        """The checked value; `default` if the key is missing, which is an error without a
        default."""
        if key not in self._table:
            if default is None:
                raise self.error(f"{key} is missing", f"It must be {expected}.")
            return default
        value = self._table[key]
        if not fits(value):
            raise self.error(f"{key} is {value!r}", f"It must be {expected}.")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        text: str = self.value(key, is_text, "a string", default)
        return text

    def name(self, pattern: str, rule: str) -> str:
        name = self.text("name")
        if not re.fullmatch(pattern, name):
            raise self.error(f"name is {name!r}", f"Use {rule}.")
        return name

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        return list(self.value(key, is_texts, "a list of strings", default))

    def flag(self, key: str, *, default: bool = False) -> bool:
        return bool(self.value(key, lambda v: isinstance(v, bool), "true or false", default))

    def choice(self, key: str, literal: Any, default: str | None = None) -> Any:
        choices = get_args(literal)
        return self.value(key, lambda v: v in choices, f"one of {', '.join(choices)}", default)

    def optional(self, key: str, known: Sequence[str], what: str) -> str | None:
        """The name of something defined elsewhere in the file; None if the key is missing."""
        if key not in self._table:
            return None
        name = self.text(key)
        if name not in known:
            there_are = f"{what}s: {', '.join(known)}." if known else f"The file has no {what}."
            remedy = f"{guess(name, known)}{there_are}"
            raise self.error(f"{key} is {name!r}, which is not a {what}", remedy)
        return name

    def parts(self, key: str, build: Callable[[Table], Part], *known: str) -> list[Part]:
        """Builds each of the tables [[key]]."""
        tables = self.value(key, lambda v: isinstance(v, list), f"[[{key}]] tables", [])
        parts = []
        for number, table in enumerate(tables, start=1):
            name = table.get("name") if isinstance(table, dict) else None
            label = f" ({name})" if isinstance(name, str) else ""
            parts.append(build(Table(f"{self._where}: {key} {number}{label}", table, known)))
        return parts


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_names(value: Any) -> bool:
    return is_texts(value) and all(map(is_text, value)) and len(value) > 0


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_plain(value: Any) -> bool:
    """Whether JSON can represent it, unlike TOML's dates, infinities and NaN."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    return isinstance(value, str | bool) or is_number(value)
