"""Read a log, verify it, simulate its work with other settings, and print the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.printable import printable_lines
from croupier.sim.experiment import Progress
from croupier.sim.progress import progress_bar
from croupier.sim.replay.change import Change
from croupier.sim.replay.history import History
from croupier.sim.replay.ledger import Figures
from croupier.sim.replay.play import play
from croupier.sim.replay.reader import BadLog, Reader
from croupier.sim.replay.recorded import figures_of
from croupier.sim.replay.report import Replayed, Verification, print_found, print_json
from croupier.sim.replay.verifier import Verifier


def replay(path: Path, change: Change, *, verify: bool, as_json: bool) -> None:
    """Print the figures of the log at `path`; with `verify` only verify its decisions.

    Raises:
        CroupierError: if the log cannot be read, or a decision differs from the recorded one.
    """
    if verify and change:
        raise InvalidRequest("--verify checks the recorded decisions: it takes no changes")
    try:
        with progress_bar() as progress:
            found = find(path, change, progress, verify=verify)
    except CroupierError as error:
        # The message may quote the log.
        raise type(error)(printable_lines(str(error))) from error
    (print_json if as_json else print_found)(found, sys.stdout)


def find(path: Path, change: Change, progress: Progress, *, verify: bool = False) -> Replayed:
    """Return the result for the log at `path`.

    Raises:
        CroupierError: as `replay` does.
    """
    reader = Reader(path)
    if verify and not reader.has_beginning:
        raise BadLog(
            f"{reader.paths[0]} is part {reader.first.part}: the beginning of the log is gone,"
            " and without it decisions cannot be made again"
        )
    passes = 1 if verify or not change else 3
    history, verification = _read(reader, partial(_report, progress, "reading", 0, passes))
    if verify:
        return Replayed(reader, history, verification)
    recorded = figures_of(history)
    if not change:
        return Replayed(reader, history, verification, recorded)
    before = _played(history, Change(), partial(_report, progress, "as it was", 1, passes))
    after = _played(history, change, partial(_report, progress, "as it would be", 2, passes))
    return Replayed(reader, history, verification, recorded, change, before, after)


def _read(reader: Reader, progress: Callable[[float], None]) -> tuple[History, Verification]:
    history = History(reader.first)
    exact = Verifier(reader.first) if reader.has_beginning else None
    for place, line in reader.lines(progress):
        if exact is not None:
            exact.take(place, line)
        try:
            history.take(line)
        except Exception as error:
            raise BadLog(f"{place}: inconsistent with the lines before: {error}") from None
    history.finish()
    return history, Verification(history.events, exact.digest if exact is not None else None)


def _played(history: History, change: Change, progress: Callable[[float], None]) -> Figures:
    try:
        return play(history, change, progress)
    except CroupierError:
        raise
    except Exception as error:
        raise BadLog(f"the work of this log cannot be played: {error!r}"[:500]) from None


def _report(progress: Progress, text: str, number: int, passes: int, done: float) -> None:
    progress((number + done) / passes, text)
