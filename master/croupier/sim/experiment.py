"""The protocol of experiments: each states what it expects, runs, and returns a result.

Rule: an experiment neither prints nor writes files; the command does both for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    Attributes:
        seed: the same seed gives the same result.
        data: the folder with trace files; None if none was given.
        scale: the size of the workload; 1 runs for a few minutes.
    """

    seed: int = 0
    data: Path | None = None
    scale: float = 1.0


class Progress(Protocol):
    """Receives the progress of a run."""

    def __call__(self, done: float, text: str = "") -> None:
        """Report that `done` of the work (0 to 1) is done; `text` names the current part."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the outcome; `passed` is None if it cannot be judged, and `got` says why."""

    what: str
    expected: str
    got: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a result under their column titles; `name` becomes the name of its CSV file."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    @classmethod
    def of(cls, name: str, items: Iterable[T], cells: Mapping[str, Callable[[T], object]]) -> Table:
        """Return a table with a row for each item; `cells` have the cell under each title."""
        rows = tuple(tuple(cell(item) for cell in cells.values()) for item in items)
        return cls(name, tuple(cells), rows)


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
class Simulated:
    """The virtual time and the tasks of all runs together."""

    virtual_s: float
    tasks: int

    def __add__(self, other: Simulated) -> Simulated:
        return Simulated(self.virtual_s + other.virtual_s, self.tasks + other.tasks)

    def speed(self, took_s: float) -> str:
        """Return the speed of a run that took `took_s` real seconds, as text."""
        return (
            f"{self.virtual_s:,.0f} virtual seconds and {self.tasks:,} tasks in {took_s:.1f} s: "
            f"{self.virtual_s / took_s:,.0f} times real time, {self.tasks / took_s:,.0f} tasks/s, "
            f"{took_s / max(self.tasks, 1) * 1e6:.0f} us a task"
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A result; `notes` are sentences to print, `simulated` the virtual time and tasks."""

    checks: tuple[Check, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    simulated: Simulated | None = None

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)


class Experiment(Protocol):
    """A module with a repeatable run and a stated outcome."""

    # The expected result and its reason, in a few sentences.
    EXPECTED: str

    def run(self, options: Options, progress: Progress) -> Result:
        """Run the experiment; raises InvalidRequest if an option is missing or unusable."""
