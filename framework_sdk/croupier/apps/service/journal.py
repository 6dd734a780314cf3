"""What a controller says: to its terminal or log, and to commands that follow it."""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

from croupier.cli.terminal import print_lines
from croupier.model.printable import printable
from croupier.process.logging import lines_to
from croupier.process.queue_writer import LineWriter

KEPT: Final = 500


class Journal:
    """Numbered lines; the latest 500 are kept."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._lines: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self._next = 1
        self._stdout: LineWriter | None = None

    def write(self, line: str) -> None:
        """Print a line, and keep it. No state of stdout ends or delays a service."""
        self._print(f"{self._service}: {line}")
        self._lines.append((self._next, line))
        self._next += 1

    @property
    def last(self) -> int:
        """The number of the latest line; 0 before the first."""
        return self._next - 1

    def since(self, number: int) -> list[str]:
        """Return the lines after line `number`."""
        return [line for each, line in self._lines if each > number]

    def _print(self, line: str) -> None:
        try:
            fd = sys.stdout.fileno()
        except (OSError, ValueError):
            print_lines(line)  # stdout is no file
            return
        if self._stdout is None:
            self._stdout = lines_to(fd, self._on_recovered)
        self._stdout.put(f"{printable(line)}\n".encode())

    def _on_recovered(self, lost: int) -> None:
        self._print(f"{self._service}: {lost} lines before this one could not be written")
