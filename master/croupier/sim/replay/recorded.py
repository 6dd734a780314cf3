"""The figures of a history, as recorded."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from croupier.sim.replay.history import History, TaskRun
from croupier.sim.replay.ledger import Figures, Ledger, Party, Waits, WaitTally, parties_of

# At the same time, releases come before charges.
_Change = tuple[float, int, int, Mapping[str, int], TaskRun | None]


def figures_of(history: History) -> Figures:
    """Return shares, waits and use, as recorded. O(tasks x log tasks)."""
    ledger = Ledger(history.start, history.end)
    for at, sign, _, amounts, run in heapq.merge(
        sorted(_supplies(history), key=_order), sorted(_tasks(history), key=_order), key=_order
    ):
        if run is None:
            ledger.supply(at, amounts, sign)
        else:
            ledger.hold(at, parties_of(run.role, run.framework_id), amounts, sign)
    return ledger.figures(_waits(history))


def _order(change: _Change) -> tuple[float, int, int]:
    return change[:3]


def _supplies(history: History) -> Iterator[_Change]:
    for number, stay in enumerate(history.agents):
        yield stay.came, 1, -number, stay.total.scalars, None
        if stay.left is not None:
            yield stay.left, -1, number, stay.total.scalars, None


def _tasks(history: History) -> Iterator[_Change]:
    for number, run in enumerate(history.tasks):
        yield max(run.launched_at, history.start), 1, number, run.resources.scalars, run
        if run.ended_at is not None:
            yield run.ended_at, -1, number, run.resources.scalars, run


def _waits(history: History) -> dict[Party, Waits]:
    tally = WaitTally()
    for run in history.tasks:
        if run.launched_at <= history.start:
            continue
        parties = parties_of(run.role, run.framework_id)
        tally.launched(parties)
        if run.wanted_at is not None:
            tally.waited(parties, run.launched_at - run.wanted_at)
    for stay in history.frameworks:
        for tracked in stay.demands if stay.left is None else ():
            tally.waiting(parties_of(tracked.role, stay.framework_id), tracked.units)
    return tally.waits()
