"""Data classes as JSON files: written atomically, read back with every type checked."""

import dataclasses
import enum
import functools
import hashlib
import json
import math
import os
import re
import tempfile
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from tsmlab import paths
from tsmlab.errors import UserError

Record = TypeVar("Record")


def to_json(record: Any) -> str:
    """A data class and its checksum as indented ASCII (file names may hold any byte). NaN and
    infinities are not allowed."""
    text = json.dumps(with_checksum(dataclasses.asdict(record)), indent=1)
    return _LIST_OF_NUMBERS.sub(_on_one_line, text) + "\n"


def with_checksum(data: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a checksum that does not depend on order and layout: fields of the right types may still
    contradict each other."""
    plain = json.loads(json.dumps(data, allow_nan=False))
    return {**plain, CHECKSUM: _checksum(plain)}


def checked(data: Any) -> dict[str, Any]:
    """The same data; raises ValueError unless it is as returned by with_checksum()."""
    if _expect(dict, data).get(CHECKSUM) != _checksum(data):
        raise ValueError("it was modified (its checksum differs)")
    return dict(data)


CHECKSUM = "content_sha256"


def _checksum(data: Mapping[str, Any]) -> str:
    content = {key: value for key, value in data.items() if key != CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Fully indented, a curve of 400 points takes 1,600 lines. Strings never contain line breaks.
_LIST_OF_NUMBERS = re.compile(r"\[\n[-+.0-9eE,\s]+\]")


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{', '.join(match[0][1:-1].replace(',', ' ').split())}]"


# Errors of data that was changed, or is not JSON.
DAMAGE = (TypeError, ValueError, KeyError, OverflowError, RecursionError)


def from_json(
    kind: type[Record],
    schema: str,
    text: str,
    source: str,
    remedy: str,
    has_checksum: bool = True,
) -> Record:
    """The inverse of to_json, for a data class with the field `schema`. Ignores unknown fields,
    which a later minor version may add. Output of a native tool has no checksum. Raises UserError,
    with `remedy` for a file of another schema."""
    try:
        record = restore(kind, document(schema, text, source, remedy, has_checksum))
    except DAMAGE as error:
        raise UserError(f"{source} is damaged: {error}.", _EDITED) from error
    assert isinstance(record, kind)
    return record


def text_of(path: Path, remedy: str, what: str = "file") -> str:
    """A file's text; raises UserError, with the remedy, if it cannot be read as text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"no such {what}: {path}.", remedy) from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a directory.", remedy) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file.", remedy) from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.", remedy) from error


def schema_of(text: str, source: str, remedy: str) -> str:
    """The schema in the text, or ""; raises UserError if it is not JSON."""
    data = _parsed(text, source, remedy)
    found = data.get("schema") if isinstance(data, dict) else None
    return found if isinstance(found, str) else ""


def _parsed(text: str, source: str, remedy: str = "It may be truncated or edited.") -> Any:
    try:
        return json.loads(text)
    except DAMAGE as error:
        raise UserError(f"{source} is not JSON: {error}.", remedy) from error


def document(
    schema: str, text: str, source: str, remedy: str, has_checksum: bool = True
) -> dict[str, Any]:
    """The data of a document with this schema. Raises UserError for anything else."""
    data = _parsed(text, source)
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema:
        what = f"its schema is {found!r}" if found else "it has no schema"
        raise UserError(f"cannot read {source}: {what}, not {schema!r}.", remedy)
    try:
        return checked(data) if has_checksum else data
    except DAMAGE as error:
        raise UserError(f"{source} is damaged: {error}.", _EDITED) from error


_EDITED = "It may have been edited; give the file as it was saved."


def restore(kind: Any, value: Any) -> Any:
    """Rebuilds a value of the annotated type `kind` from JSON's plain values."""
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (a for a in arguments if a is not type(None))
        return restore(inner, value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, arguments))}")
        return value
    if origin in (list, tuple):  # a tuple of any length: tuple[X, ...]
        return origin(restore(arguments[0], item) for item in _expect(list, value))
    if origin is dict:
        return {key: restore(arguments[1], item) for key, item in _expect(dict, value).items()}
    if dataclasses.is_dataclass(kind):
        return _restore_dataclass(typing.cast(type, kind), _expect(dict, value))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is float:
        number = float(value) if type(value) is int else _expect(float, value)
        if not math.isfinite(number):  # JSON has no such numbers, but Python reads them
            raise ValueError(f"{value!r} is not a number")
        return number
    return _expect(kind, value)


def _restore_dataclass(kind: type, data: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    known = {}
    for field in dataclasses.fields(kind):
        if field.name not in data:
            if field.default_factory is not dataclasses.MISSING:
                continue  # files from before this field existed
            raise ValueError(f"{kind.__name__} lacks the field {field.name!r}")
        known[field.name] = restore(hints[field.name], data[field.name])
    return kind(**known)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _expect(kind: type, value: Any) -> Any:
    # bool is an int to isinstance(), but not to readers of the file.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is not of the type {kind.__name__}")
    return value


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes atomically: readers never see half a file, and on a full disk the old one stays.

    Anything but a regular file (a pipe, /dev/stdout) is written to directly.
    """
    # File names may hold bytes that are not text.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def save(results: Any, folders: Iterable[Path] | None = None) -> Path:
    """Saves results, which have a moment `created` and a `subject`, in the first folder that can be
    written, and returns the path. Raises UserError if there is no such folder."""
    text = to_json(results)
    name = f"{file_stem(results.created, results.subject)}.json"

    def write(folder: Path) -> Path:
        write_atomically(folder / name, text)
        return folder / name

    return in_first_folder(folders, write, "could not save the results anywhere")


def file_stem(created: str, subject: str) -> str:
    """The name of a saved file: a moment (ISO 8601), a subject, and the process ID."""
    moment = datetime.fromisoformat(created).strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{subject}-{os.getpid()}"


def in_first_folder(
    folders: Iterable[Path] | None, make: Callable[[Path], Record], problem: str
) -> Record:
    """Calls `make` for the first of some folders, by default the user's own, in which it works, and
    returns its result. Raises UserError, whose message begins with `problem`, if it works in
    none."""
    problems = []
    for folder in default_folders() if folders is None else folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return make(folder)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        except UserError as error:
            problems.append(str(error).rstrip("."))
    raise UserError(
        f"{problem} ({'; '.join(problems)}).",
        "Free some space, or set XDG_STATE_HOME to a writable directory.",
    )


def default_folders() -> list[Path]:
    # The working folder without a path: it may have been deleted.
    return [paths.state_dir() / "results", Path(tempfile.gettempdir()), Path()]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
