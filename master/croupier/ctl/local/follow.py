"""Copying the daemons' log lines from their files to stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from croupier.ctl.terminal import print_lines

POLL_S = 0.1
CHUNK_BYTES = 1024 * 1024


class LogTail:
    """A reader of the new lines of one log file."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def new_lines(self) -> list[str]:
        """Return the lines completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


async def follow(logs: Callable[[], Iterable[Path]]) -> None:
    """Copy new lines of all `logs` to stderr, until cancelled."""
    tails: dict[Path, LogTail] = {}
    while True:
        for path in logs():
            for line in tails.setdefault(path, LogTail(path)).new_lines():
                print_lines(f"[{path.stem}] {line}", file=sys.stderr)
        await asyncio.sleep(POLL_S)
