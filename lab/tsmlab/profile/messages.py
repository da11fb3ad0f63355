"""Files of pprof's profile.proto, plain or gzipped, as messages of the protobuf package.

The package parses them in C from this description, so there is no generated code.
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tsmlab.errors import UserError

# A profile of 100,000 rows has about 20 MB.
MAX_BYTES = 1 << 30

# The fields as in a .proto file; a type followed by `*` is repeated. Strings are bytes, since file
# names need not be UTF-8.
_FIELDS = {
    "Profile": "sample_type ValueType* = 1; sample Sample* = 2; mapping Mapping* = 3;"
    "location Location* = 4; function Function* = 5; string_table bytes* = 6;"
    "drop_frames int64 = 7; keep_frames int64 = 8; time_nanos int64 = 9;"
    "duration_nanos int64 = 10; period_type ValueType = 11; period int64 = 12;"
    "comment int64* = 13; default_sample_type int64 = 14",
    "ValueType": "type int64 = 1; unit int64 = 2",
    "Sample": "location_id uint64* = 1; value int64* = 2; label Label* = 3",
    "Label": "key int64 = 1; str int64 = 2; num int64 = 3; num_unit int64 = 4",
    "Mapping": "id uint64 = 1; memory_start uint64 = 2; memory_limit uint64 = 3;"
    "file_offset uint64 = 4; filename int64 = 5; build_id int64 = 6; has_functions bool = 7;"
    "has_filenames bool = 8; has_line_numbers bool = 9; has_inline_frames bool = 10",
    "Location": "id uint64 = 1; mapping_id uint64 = 2; address uint64 = 3; line Line* = 4;"
    "is_folded bool = 5",
    "Line": "function_id uint64 = 1; line int64 = 2",
    "Function": "id uint64 = 1; name int64 = 2; system_name int64 = 3; filename int64 = 4;"
    "start_line int64 = 5",
}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="tsmalloc/profile.proto", package="tsmalloc.profile", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for text in fields.split(";"):
            field_name, kind, _, number = text.split()
            plain = kind.rstrip("*")
            field = message.field.add(name=field_name, number=int(number))
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
    """The message in a file; UserError if there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"no such profile: {path}.", "`tsmalloc profile -- CMD` writes one."
        ) from None
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}.",
            "Check its owner and permissions with `ls -l`.",
        ) from error
    try:
        return _parsed(data)
    except (ValueError, zlib.error, DecodeError) as error:
        raise UserError(
            f"{path} is not a heap profile, or it is damaged ({error}).",
            "If it was copied, copy it again; docs/formats/profile.md describes the format.",
        ) from error


def _parsed(data: bytes) -> Any:
    if data.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(wbits=31)
        data = unpacker.decompress(data, MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise ValueError("it unpacks to more than 1 GiB")
        if not unpacker.eof:
            raise ValueError("it is truncated")
    if not data:
        raise ValueError("it is empty: the disk may have been full")
    message = Message()
    message.ParseFromString(data)
    return message


def packed(message: Any) -> bytes:
    return gzip.compress(message.SerializeToString(), 6, mtime=0)
