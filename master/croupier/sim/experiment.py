"""What an experiment is: it states what it expects, runs, and hands back what it got.

Rule: an experiment neither prints nor writes; the command does, the same way for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may choose for a run.

    Attributes:
        seed: the same seed gives the same result.
        data: the folder with trace files; None if none was given.
        scale: how much of the workload is run; 1 is what an experiment takes for a few minutes.
    """

    seed: int = 0
    data: Path | None = None
    scale: float = 1.0


class Progress(Protocol):
    """Told how far a run is."""

    def __call__(self, done: float, text: str = "") -> None:
        """`done` of the work (0 to 1) is behind us; `text` says what comes now."""
        ...


@dataclass(frozen=True, slots=True)
class Check:
    """One statement about the outcome; `expected` and `got` are for people."""

    what: str
    expected: str
    got: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a result under their column titles; `name` becomes the name of its CSV file."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) of one curve, in order of x."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves over common axes; `name` becomes the name of its CSV and PNG files.

    Attributes:
        is_step: the value holds until the next point, as a share over time does.
        is_bars: points are bars, those of one x side by side.
        ticks: names of x = 0, 1, 2, ..., if it is not a quantity.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    is_step: bool = False
    is_bars: bool = False
    ticks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What a run found out; `notes` are sentences worth printing, in order."""

    checks: tuple[Check, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)


class Experiment(Protocol):
    """A named, repeatable run with a stated outcome."""

    @property
    def name(self) -> str:
        """As in `croupier simulate NAME`."""
        ...

    @property
    def expected(self) -> str:
        """What should come out and why, in a few sentences."""
        ...

    def run(self, options: Options, progress: Progress) -> Result:
        """Do it.

        Raises:
            InvalidRequest: if an option is missing or unusable.
        """
        ...
