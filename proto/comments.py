"""Write what the comments of `.proto` files say about messages and fields, as a Python module.

    python comments.py DESCRIPTORS OUT

Generated code has no comments, and the HTTP API describes its objects by them. `generate.py` runs
this with the generators' protobuf.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

_MESSAGE, _FIELD, _NESTED = 4, 2, 3
_HEAD = '''"""Comments in .proto files on messages and fields; made by comments.py."""

COMMENTS = {
'''


def main() -> None:
    """Write the module."""
    descriptors, out = map(Path, sys.argv[1:])
    found = FileDescriptorSet.FromString(descriptors.read_bytes())
    lines = [f"    {name!r}: {text!r},\n" for name, text in sorted(_comments(found))]
    out.write_text(_HEAD + "".join(lines) + "}\n")


def _comments(found: FileDescriptorSet) -> Iterator[tuple[str, str]]:
    """Yield full names with the first paragraph of their comment."""
    for file in found.file:
        texts = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}
        for path, name in _named(file.package, (), file.message_type, _MESSAGE):
            lines = [line.strip() for line in texts.get(path, "").split("\n")]
            first = " ".join(lines[: lines.index("")])
            if first:
                yield name, first


def _named(above: str, path: tuple[int, ...], messages: Any, number: int) -> Iterator[Any]:
    """Yield the path and the full name of messages and their fields."""
    for at, message in enumerate(messages):
        own, name = (*path, number, at), f"{above}.{message.name}"
        yield own, name
        yield from _named(name, own, message.nested_type, _NESTED)
        for index, field in enumerate(message.field):
            yield (*own, _FIELD, index), f"{name}.{field.name}"


if __name__ == "__main__":
    main()
