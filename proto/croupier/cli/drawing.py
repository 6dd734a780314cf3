"""A table as wide as a terminal.

Rule: text that does not fit is cut with an ellipsis. If that is not enough, whole columns are left
out and named below the table. Ids are never cut: a line of ids may be too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Final

# The narrowest that a column of text is cut to.
LEAST_WIDTH: Final = 10
# The narrowest that a terminal of few columns cuts it to.
SHORTEST: Final = 5
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
        title = text_width(self.title)
        self.width = max(title, *map(text_width, self.cells)) if self.cells else title
        self.least = self.width if self.is_whole else min(self.width, max(title, LEAST_WIDTH))

    @property
    def is_whole(self) -> bool:
        """Whether it is never cut."""
        return self.is_id or self.is_number


def drawn_lines(columns: Sequence[Drawn], width: int | None, *, notes: bool = True) -> list[str]:
    """Return the line of titles, one line per object, and lines of the columns left out, if any.

    With `width` None nothing is cut or left out; without `notes` the latter lines are.
    """
    shown = list(columns)
    if width is not None:
        shown = _shown(columns, width)
    widths = [each.width for each in shown] if width is None else _widths(shown, width)
    rows = zip(*([column.title, *column.cells] for column in shown), strict=True)
    lines = [_line(shown, row, widths) for row in rows]
    left_out = [column.title for column in columns if column not in shown]
    if left_out and width is not None and notes:
        advice = f"({', '.join(left_out)}: in a wider terminal, a pipe, or with --json)"
        lines += wrap(advice, max(width, LEAST_WIDTH))
    return lines


def _shown(columns: Sequence[Drawn], width: int) -> list[Drawn]:
    """Leave out columns of the highest rank until the others fit, or none but rank 0 is left."""
    shown = list(columns)
    while _total([column.least for column in shown]) > width:
        ranked = [column for column in shown if column.rank]
        if not ranked:
            break
        shown.remove(max(ranked, key=lambda column: column.rank))
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
        _aligned(cut(text, width), width, to_right=column.is_number)
        for column, text, width in zip(columns, row, widths, strict=True)
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
