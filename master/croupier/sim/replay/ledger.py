"""Figures of a run: shares over time, waits, and the use of the cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from croupier.model.ids import Role
from croupier.model.roles import ancestors

BUCKETS = 12
# A kind and a name: of a role, a framework, or the use of a resource.
Party = tuple[str, str]


def parties_of(role: Role, framework_id: str) -> list[Party]:
    """Return the parties whose shares a task counts in: roles up to the top, and a framework."""
    return [*(("role", each) for each in (role, *ancestors(role))), ("framework", framework_id)]


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of tasks, in seconds, or None; those still `waiting` at the end are in no mean."""

    tasks: int = 0
    mean: float | None = None
    p95: float | None = None
    waiting: int = 0

    @classmethod
    def of(cls, tasks: int, waits: Iterable[float], waiting: int) -> Waits:
        """Return the figures of these waits; some tasks may have none."""
        ordered = sorted(waits)
        if not ordered:
            return cls(tasks, waiting=waiting)
        p95 = ordered[ceil(0.95 * len(ordered)) - 1]
        return cls(tasks, sum(ordered) / len(ordered), p95, waiting)


class WaitTally:
    """Collects waits by party."""

    def __init__(self) -> None:
        self._tasks: Counter[Party] = Counter()
        self._waiting: Counter[Party] = Counter()
        self._waits: defaultdict[Party, list[float]] = defaultdict(list)

    def launched(self, parties: Iterable[Party]) -> None:
        """Count a launched task."""
        self._tasks.update(parties)

    def waited(self, parties: Iterable[Party], seconds: float) -> None:
        """Add the wait of a launched task."""
        for party in parties:
            self._waits[party].append(seconds)

    def waiting(self, parties: Iterable[Party], tasks: int = 1) -> None:
        """Count tasks that wait at the end."""
        self._waiting.update(dict.fromkeys(parties, tasks))

    def waits(self) -> dict[Party, Waits]:
        """Return the waits of all parties."""
        return {
            party: Waits.of(self._tasks[party], self._waits[party], self._waiting[party])
            for party in dict.fromkeys((*self._tasks, *self._waiting))
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run.

    Attributes:
        start, end: seconds.
        shares: the mean dominant share of each role and framework, and the used part of each
            resource.
        over_time: the same in each of equal parts of the time.
        waits: by role and framework.
    """

    start: float
    end: float
    shares: Mapping[Party, float]
    over_time: Mapping[Party, Sequence[float]]
    waits: Mapping[Party, Waits]

    def parties(self, kind: str) -> list[str]:
        """Return all names of a kind, sorted."""
        return sorted({name for what, name in (*self.shares, *self.waits) if what == kind})


@dataclass(slots=True)
class _Account:
    """One party: its resources, its share since `since`, and the integrals before that."""

    since: float
    held: dict[str, int] = field(default_factory=dict)
    share: float = 0.0
    sums: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)


class Ledger:
    """Integrates shares over time. Changes come in order of time."""

    def __init__(self, start: float, end: float) -> None:
        """Begin the ledger of a run from `start` to `end`; later changes do not count."""
        self._start, self._end = start, end
        self._width = (end - start) / BUCKETS
        self._total: dict[str, int] = {}
        self._accounts: dict[Party, _Account] = {}

    def supply(self, at: float, amounts: Mapping[str, int], sign: int) -> None:
        """Add resources to the cluster, or remove them. O(parties)."""
        for account in self._accounts.values():
            self._settle(account, at)
        for name, milli in amounts.items():
            self._total[name] = self._total.get(name, 0) + sign * milli
        for account in self._accounts.values():
            account.share = self._share(account)

    def hold(
        self, at: float, parties: Iterable[Party], amounts: Mapping[str, int], sign: int
    ) -> None:
        """Add resources to those that the parties hold, or remove them."""
        for party in parties:
            self._change(at, party, amounts, sign)
        for name, milli in amounts.items():
            self._change(at, ("use", name), {name: milli}, sign)

    def figures(self, waits: Mapping[Party, Waits]) -> Figures:
        """Return the figures at the end."""
        for account in self._accounts.values():
            self._settle(account, self._end)
        width, whole = self._width or 1.0, (self._end - self._start) or 1.0
        over_time = {
            party: tuple(each / width for each in account.sums)
            for party, account in self._accounts.items()
        }
        shares = {party: sum(account.sums) / whole for party, account in self._accounts.items()}
        return Figures(self._start, self._end, shares, over_time, waits)

    def _change(self, at: float, party: Party, amounts: Mapping[str, int], sign: int) -> None:
        account = self._accounts.get(party)
        if account is None:
            account = self._accounts[party] = _Account(at)
        self._settle(account, at)
        held = account.held
        for name, milli in amounts.items():
            held[name] = held.get(name, 0) + sign * milli
        account.share = self._share(account)

    def _share(self, account: _Account) -> float:
        held = {name: milli for name, milli in account.held.items() if self._total.get(name)}
        return max((milli / self._total[name] for name, milli in held.items()), default=0.0)

    def _settle(self, account: _Account, at: float) -> None:
        """Integrate the share until `at`, over each part of the time."""
        begin, at = max(account.since, self._start), min(at, self._end)
        account.since = max(account.since, at)
        if not account.share or at <= begin:
            return
        for part in range(self._part(begin), self._part(at) + 1):
            left = self._start + part * self._width
            until = at if part == BUCKETS - 1 else min(at, left + self._width)
            account.sums[part] += account.share * max(until - max(begin, left), 0.0)

    def _part(self, at: float) -> int:
        return min(int((at - self._start) / self._width), BUCKETS - 1) if self._width else 0


def as_json(figures: Figures) -> dict[str, Any]:
    """Return the figures as JSON."""
    document: dict[str, Any] = {"seconds": figures.end - figures.start}
    for kind, name in (("role", "roles"), ("framework", "frameworks")):
        document[name] = {
            each: {
                "share": figures.shares.get((kind, each), 0.0),
                "share_over_time": list(figures.over_time.get((kind, each), ())),
                **_waits_json(figures.waits.get((kind, each), Waits())),
            }
            for each in figures.parties(kind)
        }
    document["utilisation"] = {each: figures.shares["use", each] for each in figures.parties("use")}
    return document


def _waits_json(waits: Waits) -> dict[str, Any]:
    return {
        "tasks": waits.tasks,
        "wait_mean_s": waits.mean,
        "wait_p95_s": waits.p95,
        "waiting": waits.waiting,
    }
