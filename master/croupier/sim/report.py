"""What a person reads of a result, and the CSV files of it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TextIO

from croupier.sim.experiment import Plot, Result

_WORDS: Final = {True: "ok  ", False: "FAIL", None: "n/a "}


def print_result(result: Result, out: TextIO) -> None:
    """Tables, notes, then each check with what was expected and what came out."""
    for table in result.tables:
        print(f"\n{table.name}", file=out)
        print_columns(table.columns, table.rows, out)
    if result.notes:
        print(file=out)
    for note in result.notes:
        print(note, file=out)
    print(file=out)
    for check in result.checks:
        print(f"{_WORDS[check.passed]} {check.what}", file=out)
        print(f"       expected {check.expected}", file=out)
        print(f"       got      {check.got}", file=out)
    verdicts = [check.passed for check in result.checks]
    judged = f"{verdicts.count(True)} checks passed, {verdicts.count(False)} failed"
    unjudged = verdicts.count(None)
    print(f"{judged}, {unjudged} not judged" if unjudged else judged, file=out)


def print_columns(titles: Sequence[str], rows: Iterable[Sequence[object]], out: TextIO) -> None:
    """Rows under their titles, columns aligned; numbers to the right."""
    cells = [[show(cell) for cell in row] for row in rows]
    lines = [list(titles), *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(titles))]
    for line in lines:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(padded).rstrip(), file=out)


def show(cell: object) -> str:
    """A cell as text; fractions of a unit to four digits."""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def write_csv(result: Result, folder: Path) -> list[Path]:
    """One file per table and plot, in `folder`; the files written.

    Raises:
        OSError: if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *(_write(folder / f"{t.name}.csv", t.columns, t.rows) for t in result.tables),
        *(_write(folder / f"{p.name}.csv", *_flatten(p)) for p in result.plots),
    ]


def _flatten(plot: Plot) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    titles = ("series", plot.x_label, plot.y_label)
    return titles, [(line.label, x, y) for line in plot.lines for x, y in line.points]


def _write(path: Path, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        writer.writerows(rows)
    return path


def _is_number(cell: str) -> bool:
    try:
        float(cell.rstrip("%"))
    except ValueError:
        return cell in ("", "-")
    return True
