"""What a history comes to, as it was recorded."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping

from croupier.sim.replay.history import History, TaskRun
from croupier.sim.replay.ledger import Figures, Ledger, Party, Waits, role_parties

# At one moment what frees comes before what takes.
_Change = tuple[float, int, int, Mapping[str, int], TaskRun | None]


def figures_of(history: History) -> Figures:
    """Shares, waits and use, as recorded. O(tasks x log tasks)."""
    ledger = Ledger(history.start, history.end)
    for at, sign, _, amounts, run in heapq.merge(
        sorted(_supplies(history), key=_order), sorted(_tasks(history), key=_order), key=_order
    ):
        if run is None:
            ledger.supply(at, amounts, sign)
        else:
            ledger.hold(at, parties_of(run), amounts, sign)
    return ledger.figures(_waits(history))


def parties_of(run: TaskRun) -> list[Party]:
    """Whose share the task counts in."""
    return [*role_parties(run.role), ("framework", run.framework_id)]


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
    waits: defaultdict[Party, list[float]] = defaultdict(list)
    tasks: defaultdict[Party, int] = defaultdict(int)
    waiting: defaultdict[Party, int] = defaultdict(int)
    for run in history.tasks:
        if run.launched_at <= history.start:
            continue
        for party in parties_of(run):
            tasks[party] += 1
            if run.wanted_at is not None:
                waits[party].append(run.launched_at - run.wanted_at)
    for stay in history.frameworks:
        if stay.left is not None:
            continue
        for wish in stay.wishes:
            for party in (*role_parties(wish.role), ("framework", str(stay.framework_id))):
                waiting[party] += wish.units
    return {
        party: Waits.of(tasks[party], waits[party], waiting[party])
        for party in dict.fromkeys((*tasks, *waiting))
    }
