"""Reads a log, asks the core, plays the work again, and prints what was found."""

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
from croupier.sim.replay.exact import Exact
from croupier.sim.replay.history import History
from croupier.sim.replay.ledger import Figures
from croupier.sim.replay.play import play
from croupier.sim.replay.reader import BadLog, Reader
from croupier.sim.replay.recorded import figures_of
from croupier.sim.replay.report import Found, Verdict, print_found, print_json


def replay(path: Path, change: Change, *, verify: bool, as_json: bool) -> None:
    """Print what the log at `path` tells; with `verify` only whether it can be trusted.

    Raises:
        CroupierError: if the log cannot be read, or decisions are not those recorded.
    """
    if verify and change:
        raise InvalidRequest("--verify looks at what was recorded: it takes no changes")
    try:
        with progress_bar() as progress:
            found = find(path, change, progress, verify=verify)
    except CroupierError as error:
        # It may quote what is in the log.
        raise type(error)(printable_lines(str(error))) from error
    (print_json if as_json else print_found)(found, sys.stdout)


def find(path: Path, change: Change, progress: Progress, *, verify: bool = False) -> Found:
    """All that is to be told of the log at `path`.

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
    history, verdict = _read(reader, partial(_tell, progress, "reading", 0, passes))
    if verify:
        return Found(reader, history, verdict)
    recorded = figures_of(history)
    if not change:
        return Found(reader, history, verdict, recorded)
    before = _played(history, Change(), partial(_tell, progress, "as it was", 1, passes))
    after = _played(history, change, partial(_tell, progress, "as it would be", 2, passes))
    return Found(reader, history, verdict, recorded, change, before, after)


def _read(reader: Reader, progress: Callable[[float], None]) -> tuple[History, Verdict]:
    history = History(reader.first)
    exact = Exact(reader.first) if reader.has_beginning else None
    for place, line in reader.lines(progress):
        if exact is not None:
            exact.take(place, line)
        try:
            history.take(line)
        except Exception as error:
            raise BadLog(f"{place}: it makes no sense after what precedes it: {error}") from None
    history.finish()
    return history, Verdict(history.events, exact.digest if exact is not None else None)


def _played(history: History, change: Change, progress: Callable[[float], None]) -> Figures:
    try:
        return play(history, change, progress)
    except CroupierError:
        raise
    except Exception as error:
        raise BadLog(f"the work of this log cannot be played: {error!r}"[:500]) from None


def _tell(progress: Progress, text: str, number: int, passes: int, done: float) -> None:
    progress((number + done) / passes, text)
