"""The result of a replay: a log is read, verified, and its work simulated with other settings."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from croupier.master.allocator import Allocator, policies
from croupier.master.core.registry import Registry
from croupier.master.core.state_recovery import recover_state
from croupier.master.core.step import step
from croupier.master.eventlog.digest import Digest, outcomes_of
from croupier.master.eventlog.lines import Head, Line, LogEntry
from croupier.model.errors import CroupierError
from croupier.sim.experiment import Progress
from croupier.sim.replay.change import Change
from croupier.sim.replay.history import History, TaskRun
from croupier.sim.replay.ledger import Figures, Ledger, Party, Waits, WaitTally, parties_of
from croupier.sim.replay.play import play
from croupier.sim.replay.reader import BadLog, LogPlace, Reader

_SHOWN = 5
# At the same time, releases come before charges.
_Change = tuple[float, int, int, Mapping[str, int], TaskRun | None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay; figures are None unless requested, `digest` unless verified."""

    reader: Reader
    history: History
    digest: str | None
    recorded: Figures | None = None
    change: Change | None = None
    before: Figures | None = None
    after: Figures | None = None


def find(path: Path, change: Change, progress: Progress, *, verify: bool = False) -> Replayed:
    """Return the result for the log at `path`; raises CroupierError if unreadable or different."""
    reader = Reader(path)
    if verify and not reader.has_beginning:
        raise BadLog(
            f"{reader.paths[0]} is part {reader.first.part}: the beginning of the log is gone,"
            " and without it decisions cannot be made again"
        )
    passes = 1 if verify or not change else 3
    history, digest = _read(reader, partial(_report, progress, "reading", 0, passes))
    if verify:
        return Replayed(reader, history, digest)
    recorded = figures_of(history)
    if not change:
        return Replayed(reader, history, digest, recorded)
    before = _played(history, Change(), partial(_report, progress, "as it was", 1, passes))
    after = _played(history, change, partial(_report, progress, "as it would be", 2, passes))
    return Replayed(reader, history, digest, recorded, change, before, after)


def _read(reader: Reader, progress: Callable[[float], None]) -> tuple[History, str | None]:
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
    return history, exact.digest if exact is not None else None


def _played(history: History, change: Change, progress: Callable[[float], None]) -> Figures:
    try:
        return play(history, change, progress)
    except CroupierError:
        raise
    except Exception as error:
        raise BadLog(f"the work of this log cannot be played: {error!r}"[:500]) from None


def _report(progress: Progress, text: str, number: int, passes: int, done: float) -> None:
    progress((number + done) / passes, text)


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


class Diverged(CroupierError):
    """The core decided differently from the log."""


class Verifier:
    """A master's core that decides the events of a log again."""

    def __init__(self, head: Head) -> None:
        """Begin where the master began; raises BadLog if none can begin from this head."""
        assert head.part == 1
        try:
            for settings in head.roles.values():
                settings.check()
            allocator = Allocator(policies.make(head.policy, head.seed), head.rules, head.roles)
            registry = head.registry or Registry()
            self.state = recover_state(registry, head.master_id, head.settings, allocator, head.at)
        except Exception as error:
            raise BadLog(f"no master can begin from this head: {_text_of(error)}") from None
        self.events = 0
        self._head = head
        self._digest = Digest()

    @property
    def digest(self) -> str:
        """The digest of all decisions so far."""
        return str(self._digest)

    def take(self, place: LogPlace, line: Line) -> None:
        """Decide the event of one more line; raises Diverged, or BadLog if the core fails on it."""
        if isinstance(line, Head):
            self._check(place, line)
        elif isinstance(line, LogEntry):
            self._decide(place, line)

    def _check(self, place: LogPlace, head: Head) -> None:
        if head.part > 1 and (head.events, head.digest) != (self.events, self.digest):
            raise Diverged(
                f"{place}: the head expects {head.events} events before it with the digest"
                f" {head.digest}; there were {self.events} with {self.digest}"
            )

    def _decide(self, place: LogPlace, entry: LogEntry) -> None:
        try:
            effects = step(self.state, entry.event, entry.at)
        except Exception as error:
            kind = type(entry.event).__name__
            raise BadLog(f"{place}: the core fails on this {kind}: {_text_of(error)}") from error
        self.events += 1
        decided = self._digest.add(effects) if effects else ""
        if decided == entry.digest:
            return
        did = tuple(outcomes_of(effects))
        raise Diverged(
            f"{place}: event {self.events}, {type(entry.event).__name__}, was decided differently"
            f" from the log\n  recorded {_joined(entry.outcomes)}\n  now      {_joined(did)}"
            f"\n  the log was written by version {self._head.version}"
        )


def _joined(did: tuple[tuple[str, ...], ...]) -> str:
    shown = ", ".join(" ".join(outcome) for outcome in did[:_SHOWN]) or "no summarized effect"
    return shown + (f" and {len(did) - _SHOWN} more" if len(did) > _SHOWN else "")


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
