"""A table as wide as a terminal.

Rule: text that does not fit is cut with an ellipsis. If that is not enough, whole columns are left
out and named below the table. Ids are never cut: a line of ids may be too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.cells import cell_len, chop_cells

# The narrowest that a column of text is cut to.
LEAST_WIDTH: Final = 10
_GAP: Final = 2
_ELLIPSIS: Final = "…"


@dataclass(slots=True, eq=False)
class Drawn:
    """One column of a table; see `Column`.

    Attributes:
        width: its width if nothing is cut.
        least: the narrowest that it may be cut to.
    """

    title: str
    cells: Sequence[str]
    is_number: bool = False
    is_id: bool = False
    rank: int = 0

    width: int = field(init=False, default=0)
    least: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        title = cell_len(self.title)
        self.width = max(title, *map(cell_len, self.cells)) if self.cells else title
        is_whole = self.is_id or self.is_number
        self.least = self.width if is_whole else min(self.width, max(title, LEAST_WIDTH))


def drawn_lines(columns: Sequence[Drawn], width: int) -> list[str]:
    """Return the line of titles, one line per object, and one of the columns left out, if any."""
    shown = list(columns)
    while _total([column.least for column in shown]) > width:
        ranked = [column for column in shown if column.rank]
        if not ranked:
            break
        shown.remove(max(ranked, key=lambda column: column.rank))
    widths = _widths(shown, width)
    rows = zip(*([column.title, *column.cells] for column in shown), strict=True)
    lines = [_line(shown, row, widths) for row in rows]
    left_out = [column.title for column in columns if column not in shown]
    if left_out:
        lines.append(f"({', '.join(left_out)}: in a wider terminal, a pipe, or with --json)")
    return lines


def _widths(columns: Sequence[Drawn], width: int) -> list[int]:
    """Return the width of each column. The widest that may be cut are cut first."""
    widths = [min(column.width, max(column.least, width)) for column in columns]
    while _total(widths) > width:
        cuttable = [n for n, column in enumerate(columns) if widths[n] > column.least]
        if not cuttable:
            break
        widths[max(cuttable, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _line(columns: Sequence[Drawn], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        _aligned(_cut(text, width), width, to_right=column.is_number)
        for column, text, width in zip(columns, row, widths, strict=True)
    ]
    return (" " * _GAP).join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return chop_cells(text, width - 1)[0] + _ELLIPSIS


def _aligned(text: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if to_right else text + space
