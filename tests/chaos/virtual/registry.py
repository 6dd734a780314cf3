"""The durable registry that all masters share, and the leader lease.

Rule: a commit is atomic, and is accepted only from the present leader. Each leadership has its own
number: the revision of its key. A lease expires without a keep-alive for `ttl_s`. The registry
never fails; requests travel on streams that are cut, delayed and lost like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from croupier.master.core.records import Record
from croupier.master.core.registry import Registry
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.network import End, Ended, Network

NAME = "registry"


@dataclass(frozen=True, slots=True)
class Campaign:
    """A request to lead once no other master does; a lease belongs to one run of a program."""

    candidate: str


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A keep-alive; the answer is the same."""

    candidate: str
    number: int


@dataclass(frozen=True, slots=True)
class Elected:
    """The election of a leader, with its revision, the durable records, and their commits."""

    revision: int
    registry: Registry
    commits: int


@dataclass(frozen=True, slots=True)
class LeaderIs:
    """The present leader; empty if there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A request to make records durable, if the sender still leads under this revision."""

    revision: int
    number: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to a commit; `commits` counts all commits of the cluster."""

    number: int
    is_fenced: bool
    commits: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of all durable records, as an operator makes it."""

    registry: Registry
    commits: int


@dataclass(frozen=True, slots=True)
class Resign:
    """The end of a leadership."""

    revision: int


class SharedRegistry:
    """The store and the election.

    Attributes:
        durable: the records that a new leader finds.
        leader: the candidate that holds the lease.
        revision: the revision of that leadership; it only grows.
        slow_s: the duration of each commit.
        commits, refused: the numbers of accepted and of fenced commits.
        forgets_last: for a mutant: a crash loses the last confirmed commit.
        is_fencing: for a mutant: False accepts commits of deposed leaders.
        is_numbering: for a mutant: False gives all commits one number.
        on_commit: receives each record that has become durable.
    """

    forgets_last = False
    is_fencing = True
    is_numbering = True

    def __init__(
        self,
        clock: TracedClock,
        network: Network,
        ttl_s: float,
        on_commit: Callable[[Record], None],
    ) -> None:
        """Begin without records; with `ttl_s` 0 leases never expire, as for one local master."""
        self.clock, self.network, self.ttl_s, self.on_commit = clock, network, ttl_s, on_commit
        self.durable = Registry()
        self.leader = ""
        self.revision = 0
        self.slow_s = 0.0
        self.commits = self.refused = 0
        self._number = 0
        self._before: Copy | None = None
        self._ends: dict[End, str] = {}
        self._heard: dict[str, float] = {}
        self._waiting: list[str] = []
        network.add(NAME, self)

    @property
    def is_up(self) -> bool:
        return True

    def on_arrival(self, end: End, message: object) -> None:
        """Handle a request of a master."""
        if isinstance(message, Ended):
            candidate = self._ends.pop(end, "")
            if candidate in self._waiting:
                self._waiting.remove(candidate)
            if not self.ttl_s and candidate and candidate == self.leader:
                self._vacate()
            return
        match message:
            case Campaign(candidate):
                self._heard[candidate] = self.clock.now()
                self._ends[end] = candidate
                if self.leader == candidate:
                    # Its RESIGN was lost.
                    self._vacate()
                if candidate not in self._waiting:
                    self._waiting.append(candidate)
                end.send(LeaderIs(name_of(self.leader)))
                self._elect()
            case KeepAlive(candidate):
                self._heard[candidate] = self.clock.now()
                self._elect()
                end.send(message)
            case Commit():
                self.clock.after(self.slow_s, lambda: self._commit(end, message))
            case Resign(revision):
                if revision == self.revision and self.leader:
                    self._vacate()

    def crashed(self, name: str) -> None:
        """Note that a master was killed; a local file is free at once."""
        if self.forgets_last and self._before is not None and name_of(self.leader) == name:
            self.durable, self._number = self._before.registry, self._before.commits
            self._before = None
        if not self.ttl_s and name_of(self.leader) == name:
            self._vacate()

    def copy(self) -> Copy:
        return Copy(copied(self.durable), self._number)

    def put_back(self, copy: Copy) -> None:
        """Replace all durable records by a copy, and depose the leader."""
        self.durable, self._number = copied(copy.registry), copy.commits
        self._before = None
        self._vacate()

    def _commit(self, end: End, asked: Commit) -> None:
        fenced = self.is_fencing and asked.revision != self.revision
        if fenced:
            self.refused += 1
        else:
            self.commits += 1
            if self.forgets_last:
                self._before = self.copy()
            self._number += self.is_numbering
            for record in asked.records:
                self.durable.apply(record)
                self.on_commit(record)
        end.send(Committed(asked.number, fenced, self._number))

    def _vacate(self) -> None:
        self.leader = ""
        self.revision += 1
        self._elect()

    def _elect(self) -> None:
        """Elect the first live candidate, if there is no leader."""
        alive_since = self.clock.now() - (self.ttl_s or float("inf"))
        alive = [name for name in self._waiting if self._heard[name] > alive_since]
        if self.leader or not alive:
            return
        self.leader = alive[0]
        self._waiting.remove(self.leader)
        self.revision += 1
        self.clock.trace(f"registry: {self.leader} leads, revision {self.revision}")
        if self.ttl_s:
            self._watch(self.leader, self.revision)
        for end, candidate in self._ends.items():
            if candidate == self.leader:
                end.send(Elected(self.revision, copied(self.durable), self._number))
            else:
                end.send(LeaderIs(name_of(self.leader)))

    def _watch(self, name: str, revision: int) -> None:
        """End the leadership when its lease has expired."""
        until = self._heard[name] + self.ttl_s

        def look() -> None:
            if self.revision != revision or self.leader != name:
                return
            if self._heard[name] + self.ttl_s <= self.clock.now():
                self.clock.trace(f"registry: the lease of {name} has run out")
                self._vacate()
            else:
                self._watch(name, revision)

        self.clock.at(until, look)


def name_of(candidate: str) -> str:
    """Return the process of a candidate."""
    return candidate.partition("/")[0]


def copied(registry: Registry) -> Registry:
    made = Registry()
    for each in fields(registry):
        value = getattr(registry, each.name)
        setattr(made, each.name, dict(value) if isinstance(value, dict) else value)
    return made
