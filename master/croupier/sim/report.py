"""The progress bar of long runs; results as text, and as CSV files."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from croupier.model.csv_cell import csv_cell
from croupier.sim.experiment import Plot, Progress, Result

_WORDS: Final = {True: "ok  ", False: "FAIL", None: "n/a "}


def print_result(result: Result, out: TextIO) -> None:
    """Print tables, notes, and each check with the expected and the actual value."""
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
    passed = [check.passed for check in result.checks]
    judged = f"{passed.count(True)} checks passed, {passed.count(False)} failed"
    unjudged = passed.count(None)
    print(f"{judged}, {unjudged} not judged" if unjudged else judged, file=out)


def print_columns(titles: Sequence[str], rows: Iterable[Sequence[object]], out: TextIO) -> None:
    """Print rows under their titles in aligned columns, numbers to the right."""
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
    """Return a cell as text; floats to four digits."""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def write_csv(result: Result, folder: Path) -> list[Path]:
    """Write a file per table and plot to `folder`, and return them; raises OSError."""
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
        writer.writerows(map(csv_cell, row) for row in (titles, *rows))
    return path


def _is_number(cell: str) -> bool:
    try:
        float(cell.rstrip("%"))
    except ValueError:
        return cell in ("", "-")
    return True


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, text="": None  # noqa: ARG005 - the names are the protocol's
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=1.0)

        def show(done: float, text: str = "") -> None:
            bar.update(line, completed=done, description=text)

        yield show
