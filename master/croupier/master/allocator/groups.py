"""The entries of a branch, grouped by signature, so that a search skips whole groups at once.

A branch keeps groups from the first search that may skip one. They hold the same entries as its
order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from sortedcontainers import SortedList

from croupier.master.allocator.kinds import Kind, Signature

Entry = tuple[Any, ...]
Group = SortedList[Entry]

# Empty groups that are kept beside as many others: leaves come and go.
_KEPT_EMPTY = 8


class Groups:
    """The entries of one branch; those of one group have equal signatures.

    Attributes:
        version: a number that changes when groups are made or dropped.
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

    def check(self, entries: Iterable[Entry]) -> None:
        """Assert that they hold these entries, each in its group."""
        for signature, group in self._groups.items():
            assert list(group) == sorted(group)
            assert all(entry[-1].signature == signature for entry in group)
            assert all(entry[-1].group is group for entry in group)
        assert sorted(each for group in self._groups.values() for each in group) == list(entries)
        assert self._empty == sum(not group for group in self._groups.values())
