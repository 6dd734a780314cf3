"""Files in the sandboxes of tasks."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.objects import as_object
from croupier.v1 import operator_pb2 as pb


class File(TypedDict):
    """An entry of a directory in a task's sandbox.

    Attributes:
        name: with replacement characters where it is not UTF-8; such a file cannot be read.
        kind: `file`, `directory`, `link` or `other`.
        size: bytes of a file; else 0.
        modified_ms: the last write, in milliseconds since the epoch.
        mode: the permission bits.
    """

    name: str
    kind: str
    size: int
    modified_ms: int
    mode: int


class FileList(TypedDict):
    """A directory in a task's sandbox.

    Attributes:
        cut: there are more than these.
    """

    items: list[File]
    cut: bool


def file_list_view(answer: pb.ListTaskFilesResponse) -> FileList:
    """Return a directory as JSON."""
    return FileList(items=[as_object(File, each) for each in answer.files], cut=answer.cut)
