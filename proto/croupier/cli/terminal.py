"""Lines for people, which may quote agents and frameworks.

Rule: no control character of a peer reaches a terminal. The output of tasks is not printed here:
it is passed on unchanged.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TextIO

from croupier.model.printable import printable


def print_lines(*lines: str, file: TextIO | None = None) -> None:
    """Print `lines` to stdout, or to `file`, with control characters escaped.

    On a terminal they are wrapped at its width.
    """
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
