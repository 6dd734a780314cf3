"""Tables: cut to the width of a terminal, plain columns in a pipe.

Rule: in a pipe nothing is cut or folded, so that ids can be copied and columns cut out.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from croupier.cli.amounts import View
from croupier.model.durations import span_text
from croupier.model.ids import short_id
from croupier.model.printable import printable

if TYPE_CHECKING:
    from croupier.cli.drawing import Drawn


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, and its text for an object.

    Attributes:
        draw: the text on a terminal, if that differs.
        is_id: whether it is never cut.
        rank: columns of the highest rank are the first that a narrow terminal leaves out; a
            column of rank 0 always stays.
    """

    title: str
    show: Callable[[View], str]
    is_number: bool = False
    draw: Callable[[View], str] | None = None
    is_id: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one kind of object; `empty` is printed for an empty list."""

    columns: tuple[Column, ...]
    empty: str


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
    elif out.isatty() and not wide:
        _print_drawn(table, views, out, with_titles)
    else:
        titles, *lines = plain_lines(table, views)
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

    Without `notes` it does not name the columns that are left out.
    """
    from croupier.cli.drawing import drawn_lines

    drawn = width is not None
    columns = [_column(each, views, drawn=drawn) for each in table.columns]
    return drawn_lines(columns, width, notes=notes)


def plain_lines(table: Table, views: Sequence[View]) -> list[str]:
    """Return a line of titles and one per object, in aligned columns two spaces apart."""
    return lines_of(table, views, None)


def _print_drawn(table: Table, views: Sequence[View], out: TextIO, with_titles: bool) -> None:
    titles, *lines = lines_of(table, views, shutil.get_terminal_size().columns)
    if with_titles:
        print(bold(titles), file=out)
    for line in lines:
        print(line, file=out)


def _column(column: Column, views: Sequence[View], *, drawn: bool) -> Drawn:
    from croupier.cli.drawing import Drawn

    cells = [_cell(column, view, drawn=drawn) for view in views]
    return Drawn(column.title, cells, column.is_number, column.is_id, column.rank)


def bold(text: str) -> str:
    """Return `text` for a terminal, bold if that has colours."""
    return f"\x1b[1m{text}\x1b[0m" if takes_colour() else text


def takes_colour() -> bool:
    """Return whether terminals are to be written to in colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _cell(column: Column, view: View, *, drawn: bool = False) -> str:
    """Return the text of one cell, with control characters escaped."""
    show = column.draw if drawn and column.draw is not None else column.show
    return printable(show(view) or "-")
