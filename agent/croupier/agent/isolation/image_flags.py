"""The values of an agent's flags for images."""

from __future__ import annotations

import os
from pathlib import Path

from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar

_MIB = 1 << 20


def parse_roots(text: str) -> tuple[Path, ...]:
    """Read absolute directories separated by commas.

    Raises:
        InvalidRequest: if one is not absolute, or is the root directory.
    """
    roots = tuple(Path(word) for word in text.split(",") if word)
    for root in roots:
        if not root.is_absolute() or os.path.normpath(root) == "/":
            raise InvalidRequest(f"{root}: give an absolute directory other than /")
    return roots


def format_roots(roots: tuple[Path, ...]) -> str:
    """Return the text that `parse_roots` reads."""
    return ",".join(map(str, roots))


def parse_size(text: str) -> int:
    """Read an amount of disk space, such as `10GB`; return bytes.

    Raises:
        InvalidRequest: if it is not an amount above 0.
    """
    try:
        given = Resources.parse(f"disk:{text}")
    except InvalidRequest as error:
        raise InvalidRequest(f"{text!r} is not an amount such as 10GB") from error
    size = given["disk"] * _MIB // 1000
    if not size or set(given.scalars) != {"disk"} or given.ranges or given.sets:
        raise InvalidRequest(f"{text!r} is not an amount such as 10GB")
    return size


def format_size(size: int) -> str:
    """Return the text that `parse_size` reads."""
    return format_scalar("disk", size * 1000 // _MIB)
