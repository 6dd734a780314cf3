"""Tables: cut to the width of a terminal, plain columns in a pipe.

Rule: in a pipe nothing is cut or folded, so that ids can be copied and columns cut out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from croupier.ctl.views.amounts import View
from croupier.model.printable import printable


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


def number(title: str, key: str, rank: int = 0, form: str = "") -> Column:
    """Return a column of the number under `key`, in format `form`."""
    return Column(title, lambda view: format(view[key], form), is_number=True, rank=rank)


def amount(title: str, key: str, rank: int = 0) -> Column:
    """Return a column of the amount under `key`."""
    return Column(title, lambda view: str(view[key]["text"]), rank=rank)


def print_table(
    table: Table, views: Sequence[View], out: TextIO, *, with_titles: bool = True
) -> None:
    """Write `views` to `out`, drawn if it is a terminal; without titles to continue a table."""
    if not views:
        print(table.empty, file=out)
    elif out.isatty():
        _print_drawn(table, views, out, with_titles)
    else:
        for line in plain_lines(table, views)[not with_titles :]:
            print(line, file=out)


def plain_lines(table: Table, views: Sequence[View]) -> list[str]:
    """Return a line of titles and one per object, in aligned columns two spaces apart."""
    rows = [[column.title for column in table.columns]]
    rows += [[_cell(column, view) for column in table.columns] for view in views]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(table, row, widths)).rstrip() for row in rows]


def _aligned(table: Table, row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if column.is_number else text.ljust(width)
        for column, text, width in zip(table.columns, row, widths, strict=True)
    ]


def _print_drawn(table: Table, views: Sequence[View], out: TextIO, with_titles: bool) -> None:
    from croupier.ctl.drawing import Drawn, drawn_lines

    columns = []
    for column in table.columns:
        cells = [_cell(column, view, drawn=True) for view in views]
        columns.append(Drawn(column.title, cells, column.is_number, column.is_id, column.rank))
    titles, *lines = drawn_lines(columns, shutil.get_terminal_size().columns)
    if with_titles:
        print(f"\x1b[1m{titles}\x1b[0m" if _takes_colour() else titles, file=out)
    for line in lines:
        print(line, file=out)


def _takes_colour() -> bool:
    return "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


def _cell(column: Column, view: View, *, drawn: bool = False) -> str:
    """Return the text of one cell, with control characters escaped."""
    show = column.draw if drawn and column.draw is not None else column.show
    return printable(show(view) or "-")
