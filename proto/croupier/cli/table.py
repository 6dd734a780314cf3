"""Tables: cut to the width of a terminal, plain columns in a pipe.

Rule: in a pipe nothing is cut or folded, so that ids can be copied and columns cut out. On a
terminal text that does not fit is cut with an ellipsis. If that is not enough, whole columns are
left out and named below the table. Ids are never cut: a line of ids may be too long.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Final, TextIO

from croupier.cli.terminal import View
from croupier.model.durations import span_text
from croupier.model.ids import short_id
from croupier.model.printable import printable

# The narrowest that a column of text is cut to.
LEAST_WIDTH: Final = 10
# The narrowest that a terminal of few columns cuts it to.
SHORTEST: Final = 5
_GAP: Final = 2
_ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and its text for an object.

    Attributes:
        draw: the text on a terminal, if that differs.
        is_id: whether it is never cut.
        rank: columns of the highest rank are the first that a narrow terminal leaves out; a
            column of rank 0 always stays.
        is_optional: whether it is left out if it is empty for all objects.
    """

    title: str
    show: Callable[[View], str]
    is_number: bool = False
    draw: Callable[[View], str] | None = None
    is_id: bool = False
    rank: int = 0
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one kind of object; `empty` is printed for an empty list."""

    columns: tuple[Column, ...]
    empty: str

    def trimmed(self, views: Sequence[View]) -> Table:
        """Return the table without the optional columns that are empty for all `views`."""
        columns = [
            each
            for each in self.columns
            if not each.is_optional or any(each.show(view) for view in views)
        ]
        return Table(tuple(columns), self.empty)


def text(title: str, key: str, rank: int = 0, *, is_id: bool = False) -> Column:
    """Return a column of the text under `key`."""
    return Column(title, lambda view: str(view[key]), is_id=is_id, rank=rank)


def object_id(title: str, key: str, rank: int = 0) -> Column:
    """Return a column of ids, without their cluster on a terminal."""

    def drawn(view: View) -> str:
        return short_id(str(view[key]))

    return Column(title, lambda view: str(view[key]), draw=drawn, is_id=True, rank=rank)


def number(title: str, key: str, rank: int = 0, form: str = "") -> Column:
    """Return a column of the number under `key`, in format `form`."""
    return Column(title, lambda view: format(view[key], form), is_number=True, rank=rank)


def amount(title: str, key: str, rank: int = 0) -> Column:
    """Return a column of the amount under `key`."""
    return Column(title, lambda view: str(view[key]["text"]), rank=rank)


def age(title: str, key: str, rank: int = 0) -> Column:
    """Return a column of the time under `key`, in seconds, such as `3m20s`; `-` if unknown."""
    return Column(
        title,
        lambda view: "" if view.get(key) is None else span_text(view[key]),
        is_number=True,
        rank=rank,
    )


def print_table(
    table: Table,
    views: Sequence[View],
    out: TextIO,
    *,
    with_titles: bool = True,
    wide: bool = False,
) -> None:
    """Write `views` to `out`, drawn if it is a terminal; without titles to continue a table.

    With `wide` nothing is cut or left out, on a terminal either.
    """
    if not views:
        print(table.empty, file=out)
        return
    is_drawn = out.isatty() and not wide
    titles, *lines = lines_of(
        table, views, shutil.get_terminal_size().columns if is_drawn else None
    )
    if with_titles:
        print(bold(titles) if out.isatty() else titles, file=out)
    for line in lines:
        print(line, file=out)


def terminal_width() -> int | None:
    """Return the width of the terminal that stdout is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def lines_of(
    table: Table, views: Sequence[View], width: int | None, *, notes: bool = True
) -> list[str]:
    """Return a table as lines, for a terminal of `width` columns; in full if that is None.

    These are a line of titles and one per object, in aligned columns two spaces apart.
    Without `notes` they do not name the columns that are left out.
    """
    is_drawn = width is not None
    columns = [
        Drawn(each, [_cell(each, view, drawn=is_drawn) for view in views])
        for each in table.trimmed(views).columns
    ]
    return drawn_lines(columns, width, notes=notes)


def bold(text: str) -> str:
    """Return `text` for a terminal, bold if that has colours."""
    return f"\x1b[1m{text}\x1b[0m" if takes_colour() else text


def takes_colour() -> bool:
    """Return whether terminals are to be written to in colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _cell(column: Column, view: View, *, drawn: bool) -> str:
    """Return the text of one cell, with control characters escaped."""
    show = column.draw if drawn and column.draw is not None else column.show
    return printable(show(view) or "-")


@dataclass(slots=True, eq=False)
class Drawn:
    """A column with its cells: its `width` if nothing is cut, and the `least` it may be cut to."""

    column: Column
    cells: Sequence[str]
    width: int = field(init=False)
    least: int = field(init=False)

    def __post_init__(self) -> None:
        title = text_width(self.column.title)
        self.width = max(title, *map(text_width, self.cells)) if self.cells else title
        self.least = self.width if self.is_whole else min(self.width, max(title, LEAST_WIDTH))

    @property
    def is_whole(self) -> bool:
        """Whether the column is never truncated."""
        return self.column.is_id or self.column.is_number


def drawn_lines(columns: Sequence[Drawn], width: int | None, *, notes: bool = True) -> list[str]:
    """Return the line of titles, one line per object, and lines of the columns left out, if any.

    With `width` None nothing is cut or left out; without `notes` the latter lines are.
    """
    shown = list(columns)
    if width is not None:
        shown = _shown(columns, width)
    widths = [each.width for each in shown] if width is None else _widths(shown, width)
    rows = zip(*([each.column.title, *each.cells] for each in shown), strict=True)
    lines = [_line(shown, row, widths) for row in rows]
    left_out = [each.column.title for each in columns if each not in shown]
    if left_out and width is not None and notes:
        advice = f"({', '.join(left_out)}: in a wider terminal, a pipe, or with --json)"
        lines += wrap(advice, max(width, LEAST_WIDTH))
    return lines


def _shown(columns: Sequence[Drawn], width: int) -> list[Drawn]:
    """Return the columns that fit: drop the highest ranks first, and never rank 0."""
    shown = list(columns)
    while _total([column.least for column in shown]) > width:
        ranked = [each for each in shown if each.column.rank]
        if not ranked:
            break
        shown.remove(max(ranked, key=lambda each: each.column.rank))
    return shown


def _widths(columns: Sequence[Drawn], width: int) -> list[int]:
    """Return the width of each column. The widest that may be cut are cut first.

    If that is not enough, text is cut to `SHORTEST`; ids and numbers never are.
    """
    widths = [min(column.width, max(column.least, width)) for column in columns]
    shortest = [each.width if each.is_whole else min(each.width, SHORTEST) for each in columns]
    for least in ([column.least for column in columns], shortest):
        while _total(widths) > width:
            cuttable = [n for n, each in enumerate(widths) if each > least[n]]
            if not cuttable:
                break
            widths[max(cuttable, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _line(columns: Sequence[Drawn], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        _aligned(cut(text, width), width, to_right=each.column.is_number)
        for each, text, width in zip(columns, row, widths, strict=True)
    ]
    return (" " * _GAP).join(cells).rstrip()


def text_width(text: str) -> int:
    """Return the number of columns of a terminal that `text` takes: marks none, CJK two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, with an ellipsis if it was cut."""
    if text_width(text) <= width:
        return text
    if width < 1:
        return ""
    from rich.cells import chop_cells

    return chop_cells(text, width - 1)[0] + _ELLIPSIS


def _aligned(text: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - text_width(text))
    return space + text if to_right else text + space
