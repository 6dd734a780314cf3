"""Words and lines for people, which may quote agents and frameworks.

Rule: no control character of a peer reaches a terminal. The output of tasks is not printed here:
it is passed on unchanged.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO, TypeAlias

from croupier.model.ids import short_id
from croupier.model.printable import printable

# An object of croupier.api, read only.
View: TypeAlias = Mapping[str, Any]


def demand_text(demand: View) -> str:
    """Return a demand as text, such as `3 <cpus:1>`."""
    count = "any number of" if demand["count"] is None else demand["count"]
    least, most = demand["min_per_offer"], demand["max_per_offer"]
    portions = "" if (least, most) == (1, None) else f" {least} to {most or 'any'} at once"
    place = f" in {demand['role']}" if demand["role"] else ""
    tests = ", ".join(demand["constraints"])
    where = f" where {tests}" if tests else ""
    return f"{count} <{demand['unit']['text']}>{portions}{place}{where}"


def running(view: View) -> int:
    """Return the number of tasks of a role or framework that have an agent."""
    return int(view["tasks"] - view["queued"])


def named(name: str, own_id: str) -> str:
    """Return the name of an object with its short id, such as `train (1-F16)`."""
    return f"{name} ({short_id(own_id)})" if name and name != own_id else own_id


def many(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 task` or `2 tasks`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def print_lines(*lines: str, file: TextIO | None = None) -> None:
    """Print lines to stdout or `file`: escaped, and wrapped at the width of a terminal."""
    out = file or sys.stdout
    width = shutil.get_terminal_size().columns if out.isatty() else None
    text = "".join(f"{line}\n" for line in wrapped(lines, width))
    print(text, end="", file=out, flush=True)


def wrapped(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Yield `lines`, with prose wrapped at `width` columns; None wraps nothing.

    Words, such as ids, are never split, and rows of tables stay as they are: they have columns
    two spaces apart.
    """
    for line in lines:
        text = printable(line)
        indent = len(text) - len(text.lstrip())
        if width is None or len(text) <= width or "  " in text.strip():
            yield text
            continue
        yield from textwrap.wrap(
            text.strip(),
            max(width, 20),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
