"""Live progress on stderr: a bar on a terminal, or else a line from time to time."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, Self

from croupier.apps.batch.machine import FINAL, BatchTasks
from croupier.apps.batch.summary import progress_text
from croupier.cli.terminal import print_lines
from croupier.model.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_S: Final = 5.0


class Display:
    """The progress of one run; a context manager that removes the bar."""

    def __init__(self, machine: BatchTasks, *, is_terminal: bool | None = None) -> None:
        self._machine = machine
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._bar: Progress | None = None
        self._shown, self._shown_at = "", time.monotonic()

    def __enter__(self) -> Self:
        if self._is_terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("", total=self._machine.plan.count)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def note(self, text: str) -> None:
        """Print a line that stays."""
        line = f"croupier batch: {text}"
        if self._bar is None:
            print_lines(line, file=sys.stderr)
        else:
            self._bar.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    def show(self, running: int) -> None:
        """Show the progress; as plain lines, only if it changed, and every 5 s at most."""
        text = progress_text(self._machine, running)
        if self._bar is not None:
            ended = sum(self._machine.counts[state] for state in FINAL)
            self._bar.update(self._bar.task_ids[0], completed=ended, description=text)
        elif text != self._shown and time.monotonic() - self._shown_at >= PLAIN_S:
            self._shown, self._shown_at = text, time.monotonic()
            self.note(text)
