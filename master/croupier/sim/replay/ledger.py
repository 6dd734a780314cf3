"""What a run comes to: shares over time, waits, and how much of the cluster is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from croupier.model.ids import Role
from croupier.model.roles import ancestors

BUCKETS = 12
# What is integrated: a role, a framework, or the use of a resource.
Party = tuple[str, str]


def role_parties(role: Role) -> list[Party]:
    """The role and all that it is within: what it holds they hold."""
    return [("role", each) for each in (role, *ancestors(role))]


@dataclass(frozen=True, slots=True)
class Waits:
    """How long tasks waited, in seconds; `mean` and `p95` None if none has waited.

    Attributes:
        tasks: how many were launched.
        waiting: how many wait in the end; those are in no mean.
    """

    tasks: int = 0
    mean: float | None = None
    p95: float | None = None
    waiting: int = 0

    @classmethod
    def of(cls, tasks: int, waits: Iterable[float], waiting: int) -> Waits:
        """The figures of these waits, which may be of fewer tasks."""
        ordered = sorted(waits)
        if not ordered:
            return cls(tasks, waiting=waiting)
        p95 = ordered[ceil(0.95 * len(ordered)) - 1]
        return cls(tasks, sum(ordered) / len(ordered), p95, waiting)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run comes to.

    Attributes:
        start, end: seconds.
        shares: the mean dominant share of each role and framework, and of each resource how
            much of it is used.
        over_time: the same in each of equal parts of the time.
        waits: by role and framework.
    """

    start: float
    end: float
    shares: Mapping[Party, float]
    over_time: Mapping[Party, Sequence[float]]
    waits: Mapping[Party, Waits]

    def parties(self, kind: str) -> list[str]:
        """The names of all of a kind, in order."""
        return sorted({name for what, name in (*self.shares, *self.waits) if what == kind})


@dataclass(slots=True)
class _Account:
    """One party: what it holds, its share since `since`, and what that added up to before."""

    since: float
    held: dict[str, int] = field(default_factory=dict)
    share: float = 0.0
    sums: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)


class Ledger:
    """Integrates shares over time. Changes come in order of time."""

    def __init__(self, start: float, end: float) -> None:
        """Of a run from `start` to `end`; what comes later does not count."""
        self._start, self._end = start, end
        self._width = (end - start) / BUCKETS
        self._total: dict[str, int] = {}
        self._accounts: dict[Party, _Account] = {}

    def supply(self, at: float, amounts: Mapping[str, int], sign: int) -> None:
        """Agents have so much more together, or less. O(parties)."""
        for account in self._accounts.values():
            self._settle(account, at)
        for name, milli in amounts.items():
            self._total[name] = self._total.get(name, 0) + sign * milli
        for account in self._accounts.values():
            account.share = self._share(account)

    def hold(
        self, at: float, parties: Iterable[Party], amounts: Mapping[str, int], sign: int
    ) -> None:
        """The parties hold so much more, or less."""
        for party in parties:
            self._change(at, party, amounts, sign)
        for name, milli in amounts.items():
            self._change(at, ("use", name), {name: milli}, sign)

    def figures(self, waits: Mapping[Party, Waits]) -> Figures:
        """What it comes to at the end."""
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
        return max(
            (
                milli / self._total[name]
                for name, milli in account.held.items()
                if self._total.get(name)
            ),
            default=0.0,
        )

    def _settle(self, account: _Account, at: float) -> None:
        """Add up the share until `at`, part by part of the time."""
        begin, at = max(account.since, self._start), min(at, self._end)
        account.since = max(account.since, at)
        if not account.share or at <= begin:
            return
        first = self._part(begin)
        for part in range(first, self._part(at) + 1):
            left = self._start + part * self._width
            until = at if part == BUCKETS - 1 else min(at, left + self._width)
            account.sums[part] += account.share * max(until - max(begin, left), 0.0)

    def _part(self, at: float) -> int:
        return min(int((at - self._start) / self._width), BUCKETS - 1) if self._width else 0


def as_json(figures: Figures) -> dict[str, Any]:
    """The figures for programs."""
    told: dict[str, Any] = {"seconds": figures.end - figures.start}
    for kind, name in (("role", "roles"), ("framework", "frameworks")):
        told[name] = {
            each: {
                "share": figures.shares.get((kind, each), 0.0),
                "share_over_time": list(figures.over_time.get((kind, each), ())),
                **_waits_json(figures.waits.get((kind, each), Waits())),
            }
            for each in figures.parties(kind)
        }
    told["utilisation"] = {each: figures.shares["use", each] for each in figures.parties("use")}
    return told


def _waits_json(waits: Waits) -> dict[str, Any]:
    return {
        "tasks": waits.tasks,
        "wait_mean_s": waits.mean,
        "wait_p95_s": waits.p95,
        "waiting": waits.waiting,
    }
