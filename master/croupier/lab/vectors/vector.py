"""One vector: a question of fairness and its expected answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

Amounts = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`count` identical machines; `slots` is for the policy of that name."""

    count: int
    capacity: Amounts
    slots: int | None


@dataclass(frozen=True, slots=True)
class Vector:
    """The checked fields of a vector. Paths name clients and pools.

    Attributes:
        capacity: totals of the cluster, by resource; empty if there are none.
        nodes: groups of machines; None is one machine with all of `capacity`.
        demands: the amounts of one task of each client; clients in the order listed.
        weights: of clients and pools that have one: one number per resource.
        are_scalar: the paths whose weight is a single number.
        backlog: the most tasks of a client; None or absent is without end.
        tie_break: the order of nodes on exact ties.
        events: the scripted events, as text.
        also: other policies that must give the same.
        guarantee: floors, of clients and pools.
        initial: tasks that run before.
        usage: the amounts that clients hold before.
        hints: the amounts that clients declare for a task, if they differ.
        active: the clients that want tasks; None is all.
    """

    name: str
    source: str
    policy: str
    mode: str
    resources: tuple[str, ...]
    capacity: Amounts
    nodes: tuple[Group, ...] | None
    demands: Mapping[str, Amounts]
    weights: Mapping[str, Amounts]
    are_scalar: frozenset[str]
    backlog: Mapping[str, Fraction | None]
    tie_break: tuple[str, ...]
    events: tuple[str, ...]
    expected: Mapping[str, object]
    tolerance: Fraction
    note: str
    also: tuple[str, ...]
    guarantee: Mapping[str, Amounts]
    initial: Mapping[str, int]
    usage: Mapping[str, Amounts]
    hints: Mapping[str, Amounts]
    active: frozenset[str] | None
    placement: str | None

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients in the order of `demands` or, without these, of `usage`."""
        return tuple(self.demands or self.usage)

    def pools(self) -> tuple[str, ...]:
        """Return every node above a client, in order of first mention, parents first."""
        found: dict[str, None] = {}
        for client in self.clients:
            parts = client.split("/")
            found.update({"/".join(parts[:depth]): None for depth in range(1, len(parts))})
        return tuple(found)

    def machines(self) -> list[Amounts]:
        """Return the capacity of each machine, in the order in which machines are filled."""
        if self.nodes is None:
            return [self.capacity]
        return [group.capacity for group in self.nodes for _ in range(group.count)]

    def is_active(self, client: str) -> bool:
        """Return whether a client wants tasks."""
        return self.active is None or client in self.active

    def weight(self, path: str) -> Amounts:
        """Return the weight by resource; 1 is the default."""
        return self.weights.get(path, (Fraction(1),) * len(self.resources))
