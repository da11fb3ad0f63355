"""The messages of pprof's profile.proto, and files of them.

Why: every reader of heap profiles knows this format; the protobuf package reads it at the speed of
C from a description, so that no generated code has to be kept.
Refuses to: know what a profile means; model.py does.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tsmlab.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"
# A profile of 100,000 rows has some 20 MB; what unpacks to more than this is something else.
MOST_BYTES = 1 << 30

# Fields by number: a name, and a type; `*` behind it for repeated ones.
_FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    "Profile": {
        1: ("sample_type", "ValueType*"),
        2: ("sample", "Sample*"),
        3: ("mapping", "Mapping*"),
        4: ("location", "Location*"),
        5: ("function", "Function*"),
        6: ("string_table", "bytes*"),
        7: ("drop_frames", "int64"),
        8: ("keep_frames", "int64"),
        9: ("time_nanos", "int64"),
        10: ("duration_nanos", "int64"),
        11: ("period_type", "ValueType"),
        12: ("period", "int64"),
        13: ("comment", "int64*"),
        14: ("default_sample_type", "int64"),
    },
    "ValueType": {1: ("type", "int64"), 2: ("unit", "int64")},
    "Sample": {
        1: ("location_id", "uint64*"),
        2: ("value", "int64*"),
        3: ("label", "Label*"),
    },
    "Label": {
        1: ("key", "int64"),
        2: ("str", "int64"),
        3: ("num", "int64"),
        4: ("num_unit", "int64"),
    },
    "Mapping": {
        1: ("id", "uint64"),
        2: ("memory_start", "uint64"),
        3: ("memory_limit", "uint64"),
        4: ("file_offset", "uint64"),
        5: ("filename", "int64"),
        6: ("build_id", "int64"),
        7: ("has_functions", "bool"),
        8: ("has_filenames", "bool"),
        9: ("has_line_numbers", "bool"),
        10: ("has_inline_frames", "bool"),
    },
    "Location": {
        1: ("id", "uint64"),
        2: ("mapping_id", "uint64"),
        3: ("address", "uint64"),
        4: ("line", "Line*"),
        5: ("is_folded", "bool"),
    },
    "Line": {1: ("function_id", "uint64"), 2: ("line", "int64")},
    "Function": {
        1: ("id", "uint64"),
        2: ("name", "int64"),
        3: ("system_name", "int64"),
        4: ("filename", "int64"),
        5: ("start_line", "int64"),
    },
}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="tsmalloc/profile.proto", package="tsmalloc.profile", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in fields.items():
            plain = kind.rstrip("*")
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            if plain in _FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".tsmalloc.profile.{plain}"
            else:
                field.type = getattr(kinds, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("tsmalloc.profile.Profile")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(pool).GetPrototype(found)  # before protobuf 4.22


Message = _message_class()


def read(path: Path) -> Any:
    """The message in a file, unpacked if need be; raises UserError for what is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"there is no profile {path}.", "`tsmalloc profile -- CMD` writes one."
        ) from None
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}.",
            "Name a profile that is yours; `ls -l` shows whose it is.",
        ) from error
    if not data:
        raise UserError(f"{path} is empty.", "The disk may have been full: profile it again.")
    if data.startswith(GZIP_MAGIC):
        data = _unpacked(path, data)
    message = Message()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise UserError(
            f"{path} is no profile, or cut short.",
            "A heap profile of tsmalloc is a file of profile.proto (docs/formats/profile.md); "
            "if it was copied, copy it again.",
        ) from error
    return message


def _unpacked(path: Path, data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise UserError(
            f"{path} is damaged: {error}.", "Copy it again; `gzip -t` tells whether it is whole."
        ) from error
    if unpacker.unconsumed_tail:
        raise UserError(f"{path} unpacks to more than 1 GiB.", "No heap profile is that large.")
    if not unpacker.eof:
        raise UserError(
            f"{path} is cut short.", "Copy it again; `gzip -t` tells whether it is whole."
        )
    return plain


def write(message: Any, path: Path) -> None:
    """Writes all or nothing, packed."""
    data = gzip.compress(message.SerializeToString(), 6, mtime=0)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    special = path.exists() and not path.is_file()
    try:
        (path if special else temporary).write_bytes(data)
        if not special:
            temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", "Make room, or name another file."
        ) from error
