"""Bounded amounts of frameworks and their owners: bytes, frameworks and tasks."""

from __future__ import annotations

from croupier.model.ids import FrameworkId
from croupier.model.principal import PrincipalName


class ByteBudget:
    """Bytes that are held for frameworks: bounded for each, and for all together (`total`)."""

    def __init__(self, each: int, most: int) -> None:
        """Allow `each` bytes for one framework, and `most` for all."""
        self._each, self._most = each, most
        self._held: dict[FrameworkId, int] = {}
        self.total = 0

    def of(self, framework_id: FrameworkId) -> int:
        """Return the bytes held for the framework."""
        return self._held.get(framework_id, 0)

    def add(self, framework_id: FrameworkId, size: int) -> None:
        """Count `size` more bytes; fewer if it is negative."""
        held = self.of(framework_id) + size
        assert held >= 0
        self.total += size
        if held:
            self._held[framework_id] = held
        else:
            self._held.pop(framework_id, None)

    def is_full_for(self, framework_id: FrameworkId) -> bool:
        """Return whether the framework has used its bytes."""
        return self.of(framework_id) >= self._each

    @property
    def is_over(self) -> bool:
        """Whether all frameworks together exceed the budget."""
        return self.total > self._most

    def largest(self) -> FrameworkId:
        """Return the framework with the most bytes; ties go to the earliest."""
        return max(self._held, key=self._held.__getitem__)


class OwnedCounts:
    """Frameworks and tasks by owner; those without an owner are counted together."""

    def __init__(self) -> None:
        self._counts: dict[PrincipalName, tuple[int, int]] = {}

    def add(self, owner: PrincipalName, frameworks: int = 0, tasks: int = 0) -> None:
        """Add to the counts of an owner, or take away."""
        before = self._counts.get(owner, (0, 0))
        after = before[0] + frameworks, before[1] + tasks
        assert min(after) >= 0
        if after == (0, 0):
            self._counts.pop(owner, None)
        else:
            self._counts[owner] = after

    def frameworks(self, owner: PrincipalName) -> int:
        """Return how many frameworks the owner has, removed ones with live tasks included."""
        return self._counts.get(owner, (0, 0))[0]

    def tasks(self, owner: PrincipalName) -> int:
        """Return how many tasks the owner's frameworks have that are not acknowledged."""
        return self._counts.get(owner, (0, 0))[1]
