"""A profile for other programs: folded stacks, and profile.proto with names.

Why: the machine that reads a profile often lacks the binaries of the machine that wrote it.
Refuses to: change an estimate.
"""

from collections import defaultdict
from typing import Any

from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import DROP_FRAMES, Frame, Profile, Type
from tsmlab.profile.sites import Stacks, by_stack
from tsmlab.profile.symbols import Symbols


def folded(profile: Profile, stacks: Stacks, of: Type) -> dict[str, Estimate]:
    """Stacks of functions, outermost first with `;` between them, and their bytes."""
    found: dict[str, Estimate] = defaultdict(Estimate)
    for held in by_stack(profile, stacks, of):
        names = (frame.function for frame in reversed(held.frames))
        line = ";".join(name.replace(";", ",").replace("\n", " ") for name in names)
        found[line].include(held.bytes)
    return dict(sorted(found.items()))


def name_locations(message: Any, symbols: Symbols) -> None:
    """Writes functions, lines and inlined frames into a message, for those that it lacks."""
    strings = {text: number for number, text in enumerate(message.string_table)}

    def text(value: str) -> int:
        data = value.encode(errors="surrogateescape")
        if data not in strings:
            strings[data] = len(message.string_table)
            message.string_table.append(data)
        return strings[data]

    functions: dict[tuple[str, str], int] = {}
    highest = max((each.id for each in message.function), default=0)

    def function(frame: Frame) -> int:
        key = frame.function, frame.file
        if key not in functions:
            functions[key] = highest + len(functions) + 1
            name = text(frame.function)
            message.function.add(
                id=functions[key], name=name, system_name=name, filename=text(frame.file)
            )
        return functions[key]

    named = set()
    for location in message.location:
        if location.line:
            continue
        for frame in symbols.frames[location.id]:
            location.line.add(function_id=function(frame), line=frame.line)
        named.add(location.mapping_id)
    for mapping in message.mapping:
        if mapping.id in named:
            mapping.has_functions = mapping.has_filenames = True
            mapping.has_line_numbers = mapping.has_inline_frames = True
    if not message.drop_frames:
        message.drop_frames = text(DROP_FRAMES)
