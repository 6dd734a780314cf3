"""One vector: a question, and the answer that must come out.

Rule: every field is read here, by the schema, or the vector is refused; nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

Amounts = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`count` machines alike; `slots` only for the policy of that name."""

    count: int
    capacity: Amounts
    slots: int | None


@dataclass(frozen=True, slots=True)
class Vector:
    """What a file says, checked. Paths name clients and pools.

    Attributes:
        capacity: totals of the cluster, by resource; empty if there are none.
        nodes: groups of machines; None is one machine with all of `capacity`.
        demands: what one task of a client takes; clients in the order listed.
        weights: of clients and pools that have one: one number per resource.
        are_scalar: the paths whose weight is a single number.
        backlog: most tasks of a client; None or absent is without end.
        tie_break: who comes first on exact ties.
        events: what happens after the fill, in words.
        also: other policies that must give the same.
        guarantee: floors, of clients and pools.
        initial: tasks that run before.
        usage: what clients hold before.
        declared: what clients say that a task takes, if it is something else.
        active: the clients that want anything; None is all.
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
    declared: Mapping[str, Amounts]
    active: frozenset[str] | None
    placement: str | None

    @property
    def clients(self) -> tuple[str, ...]:
        """In the order listed: of demands or, without these, of usage."""
        return tuple(self.demands or self.usage)

    def pools(self) -> tuple[str, ...]:
        """Every node above a client, in order of first mention, parents first."""
        found: dict[str, None] = {}
        for client in self.clients:
            parts = client.split("/")
            found.update({"/".join(parts[:depth]): None for depth in range(1, len(parts))})
        return tuple(found)

    def machines(self) -> list[Amounts]:
        """What each machine has, in the order in which they are filled."""
        if self.nodes is None:
            return [self.capacity]
        return [group.capacity for group in self.nodes for _ in range(group.count)]

    def is_active(self, client: str) -> bool:
        """Whether a client wants anything."""
        return self.active is None or client in self.active

    def weight(self, path: str) -> Amounts:
        """By resource; 1 for all if nothing is said."""
        return self.weights.get(path, (Fraction(1),) * len(self.resources))
