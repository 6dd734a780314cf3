"""Markdown that the generated pages are made of."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc
from typing import Final

COLUMNS: Final = 120
_SECTION: Final = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_ITEM: Final = re.compile(r"(\*?\*?[\w.]+): (.*)")


def cell(text: str) -> str:
    """Return text as one line of a table's cell."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, whose cells are Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in rows)


def code(text: str, language: str = "text") -> Iterator[str]:
    """Yield a fenced block."""
    yield from (f"```{language}", *text.splitlines(), "```")


def paragraph(text: str, indent: str = "") -> Iterator[str]:
    """Yield text in lines of the allowed length; the lines after the first begin with `indent`."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*") for part in parts[::2]]
    safe = "`".join(parts)
    yield from textwrap.wrap(
        safe, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def docstring(text: str | None) -> Iterator[str]:
    """Yield a docstring in Google's style: paragraphs, blocks of code, and lists for sections."""
    in_section = False
    # Blocks of code may have empty lines.
    for part in re.split(r"\n\s*\n(?!    )|(?<=:)\n\s*\n|(?<=\.)\n\s*\n", cleandoc(text or "")):
        head, _, rest = part.partition("\n")
        found = _SECTION.fullmatch(head)
        if found:
            in_section = True
            yield from ("", f"{found[1]}:", "")
            yield from _items(cleandoc(rest))
        elif part.startswith("    ") and not in_section:
            yield from ("", *code(textwrap.dedent(part), "python"))
        elif part.startswith("    "):
            yield from _items(cleandoc(part))
        elif part:
            in_section = False
            yield ""
            yield from paragraph(part)


def _items(text: str) -> Iterator[str]:
    items = list[str]()
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line)
    for item in items:
        found = _ITEM.fullmatch(item)
        shown = f"- `{found[1]}`: {found[2]}" if found else f"- {item}"
        yield from paragraph(shown, "  ")
