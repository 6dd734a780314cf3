"""How many frameworks and tasks each owner has."""

from __future__ import annotations

from croupier.model.principal import PrincipalName


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
