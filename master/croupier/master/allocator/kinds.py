"""Kinds of demand: the part of a leaf's demand that decides which agents can ever serve it.

A kind is a list of units with their constraints. Leaves that wait for the same share one kind, and
what is learned about the kind holds for all of them; see `profiles`. A branch groups its entries by
the kinds below them, so that a search skips whole groups at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain
from typing import Any, Final

from sortedcontainers import SortedList

from croupier.master.allocator.pending_demand import PendingDemand
from croupier.model.attributes import Constraint
from croupier.model.devices import DeviceNeed
from croupier.model.resources import Resources

Part = tuple[Resources, tuple[Constraint, ...], tuple[DeviceNeed, ...]]
# The constraint that each part of a kind fails; None if its unit is too large.
Unmet = tuple[Constraint | None, ...]
# How many kinds without users are kept.
MOST_IDLE: Final = 1_000
# The kinds of the leaves at or below a node; None if they are many.
Signature = frozenset["Kind"] | None


class Kind:
    """Units with their constraints, shared by the leaves that wait for them.

    Attributes:
        parts: each unit with its constraints; empty for whole remainders.
        alone: the signature of a leaf of this kind.
        users: how many leaves are of this kind.
    """

    __slots__ = ("alone", "parts", "users")

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self.alone: frozenset[Kind] = frozenset((self,))
        self.users = 0


# Whole remainders.
ANY = Kind(())


class Kinds:
    """All kinds in use, and the latest unused ones: frameworks often ask for the same again.

    Attributes:
        named: how many constraints of kinds name each attribute.
        version: a number that changes when a constraint names an attribute for the first time.
    """

    def __init__(self) -> None:
        self.named: dict[str, int] = {}
        self.version = 0
        self._by_parts: dict[tuple[Part, ...], Kind] = {}
        # Kinds without users, the oldest first.
        self._idle: dict[Kind, None] = {}

    def __len__(self) -> int:
        return len(self._by_parts)

    def take(self, pending: Sequence[PendingDemand] | None) -> Kind:
        """Return the kind of this pending demand, with one user more."""
        parts = tuple(chain.from_iterable(map(parts_of, counting(pending or ()))))
        if not parts:
            return ANY
        kind = self._by_parts.get(parts)
        if kind is None:
            kind = self._by_parts[parts] = Kind(parts)
            for name in _names(parts):
                if name not in self.named:
                    self.version += 1
                self.named[name] = self.named.get(name, 0) + 1
        elif not kind.users:
            del self._idle[kind]
        kind.users += 1
        return kind

    def release(self, kind: Kind) -> None:
        """Count one user less; of the kinds without users, some are kept."""
        if kind is ANY:
            return
        kind.users -= 1
        if not kind.users:
            self._idle[kind] = None
            if len(self._idle) > MOST_IDLE:
                self._forget(next(iter(self._idle)))

    def _forget(self, kind: Kind) -> None:
        del self._idle[kind], self._by_parts[kind.parts]
        for name in _names(kind.parts):
            self.named[name] -= 1
            if not self.named[name]:
                del self.named[name]


def parts_of(pending: PendingDemand) -> list[Part]:
    """Return the unit, its constraints and needs of devices; of a gang, each unit of members."""
    constraints = pending.demand.constraints
    return [(piece, constraints, pending.needs_of(piece)) for piece in pending.pieces]


def counting(pending: Sequence[PendingDemand]) -> Sequence[PendingDemand]:
    """Return the pending demand that makes up the kind: units may be left of it, now or later."""
    if len(pending) < 2:
        return pending
    return [each for each in pending if each.demand.count != 0]


def _names(parts: Iterable[Part]) -> list[str]:
    return [each.attribute for _, constraints, _ in parts for each in constraints]


Entry = tuple[Any, ...]
Group = SortedList[Entry]

# Empty groups that are kept beside as many others: leaves come and go.
_KEPT_EMPTY = 8


class Groups:
    """The entries of one branch, in groups of equal signatures.

    A branch keeps groups from the first search that may skip one.

    `version`: a number that changes when groups are made or dropped.
    """

    __slots__ = ("_empty", "_groups", "version")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._groups: dict[Signature, Group] = {}
        self._empty = 0
        self.version = 0
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, entry: Entry) -> None:
        """Add the entry of a node by its present signature."""
        node = entry[-1]
        group = self._groups.get(node.signature)
        if group is None:
            group = self._groups[node.signature] = SortedList()
            self.version += 1
        elif not group:
            self._empty -= 1
        group.add(entry)
        node.group = group

    def remove(self, entry: Entry) -> None:
        """Remove the entry of a node from the group that it was added to."""
        node = entry[-1]
        group: Group = node.group
        group.remove(entry)
        node.group = None
        if not group:
            self._empty += 1
            if 2 * self._empty > len(self._groups) + _KEPT_EMPTY:
                self._groups = {key: each for key, each in self._groups.items() if each}
                self._empty = 0
                self.version += 1

    def without(self, kinds: Container[Kind]) -> list[Group]:
        """Return the groups that have nodes of other kinds. O(groups)."""
        return [
            group
            for signature, group in self._groups.items()
            if signature is None or not all(kind in kinds for kind in signature)
        ]
