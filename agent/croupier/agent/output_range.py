"""The part of an output file that a request asks for: by offset, by limit, from the end, by Range.

Offsets count from the first byte that the task wrote, also after the agent has removed the oldest
output. A request for removed bytes gets what follows them; `Croupier-Offset` is its offset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from croupier.model.errors import InvalidRequest

MAX_OFFSET: Final = 2**62
MAX_LINES: Final = 1_000_000
# Bytes that are searched for the beginning of the last lines.
MAX_SEARCH: Final = 16 << 20
_STEP: Final = 64 * 1024
# One range; a header with several, or of another unit, is ignored as HTTP allows.
_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{0,19})|bytes=-(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A request for a part of a file.

    Attributes:
        offset: of the first byte; None: by `tail_bytes` or `tail_lines`.
        limit: the most bytes; None: to the end.
        is_range: whether it was asked for by a Range header.
    """

    offset: int | None = 0
    limit: int | None = None
    tail_bytes: int = 0
    tail_lines: int = 0
    follow: bool = False
    is_range: bool = False

    def begin(self, fd: int, first: int) -> int:
        """Return where to read from: not before `first`, and perhaps beyond the end."""
        size = os.fstat(fd).st_size
        if self.offset is not None:
            return max(self.offset, first)
        if self.tail_lines:
            return last_lines(fd, self.tail_lines, first, size)
        return max(size - self.tail_bytes, first)

    def settled(self, begin: int, size: int) -> tuple[PartRequest, dict[str, str]]:
        """Return the request with a limit, if it is a range, and the headers of its answer.

        Args:
            begin: the offset of the first byte of the answer.
            size: of the file now.
        """
        headers = {
            "Accept-Ranges": "bytes",
            "Croupier-Offset": str(begin),
            "Croupier-Size": str(size),
        }
        if not self.is_range:
            return self, headers
        end = size
        if self.offset is not None and self.limit is not None:
            end = min(size, self.offset + self.limit)
        limit = max(0, end - begin)
        sent = f"{begin}-{end - 1}" if limit else "*"
        return replace(self, limit=limit), {**headers, "Content-Range": f"bytes {sent}/{size}"}


def requested_part(query: Mapping[str, str], range_header: str | None) -> PartRequest:
    """Return what a request asks for.

    Raises:
        InvalidRequest: if a value is malformed, or two contradict each other.
    """
    follow = query.get("follow", "0") == "1"
    limit = _number(query, "limit", MAX_OFFSET)
    lines, size = _number(query, "tail", MAX_LINES), _number(query, "tail_bytes", MAX_OFFSET)
    offset = _number(query, "offset", MAX_OFFSET)
    if sum(value is not None for value in (offset, lines, size)) > 1:
        raise InvalidRequest("give only one of offset, tail and tail_bytes")
    if lines is not None or size is not None:
        return PartRequest(None, limit, size or 0, lines or 0, follow)
    if offset is None and range_header is not None and not follow:
        found = _RANGE.fullmatch(range_header.strip())
        if found is not None:
            return _of_range(found)
    return PartRequest(offset or 0, limit, follow=follow)


def last_lines(fd: int, lines: int, first: int, size: int) -> int:
    """Return the offset at which the last lines of a file begin, by searching from its end.

    Not before `first`, and of long lines not further from the end than `MAX_SEARCH` bytes.
    """
    lowest, end = max(first, size - MAX_SEARCH), size
    # The end of the last line begins no further line.
    left = lines + (size > lowest and os.pread(fd, 1, size - 1) == b"\n")
    while end > lowest:
        begin = max(lowest, end - _STEP)
        chunk = os.pread(fd, end - begin, begin)
        if chunk.count(b"\n") >= left:
            at = len(chunk)
            for _ in range(left):
                at = chunk.rindex(b"\n", 0, at)
            return begin + at + 1
        left -= chunk.count(b"\n")
        end = begin
    return lowest


def _of_range(found: re.Match[str]) -> PartRequest:
    first, last, suffix = found.groups()
    if suffix is not None:
        return PartRequest(None, tail_bytes=min(int(suffix), MAX_OFFSET), is_range=True)
    begin = int(first)
    if begin > MAX_OFFSET or (last and int(last) < begin):
        raise InvalidRequest("the range ends before it begins, or is out of bounds")
    return PartRequest(begin, int(last) - begin + 1 if last else None, is_range=True)


def _number(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        unit = "lines" if name == "tail" else "bytes"
        raise InvalidRequest(f"{name} must be a number of {unit}")
    return int(text)
