"""Bytes that the master keeps on behalf of frameworks: bounded for each, and for all together."""

from __future__ import annotations

from croupier.model.ids import FrameworkId


class ByteBudget:
    """Counts what is kept for each framework.

    Attributes:
        total: for all frameworks together.
    """

    def __init__(self, each: int, most: int) -> None:
        """At most `each` bytes for one framework, and `most` for all."""
        self._each, self._most = each, most
        self._kept: dict[FrameworkId, int] = {}
        self.total = 0

    def of(self, framework_id: FrameworkId) -> int:
        """Bytes that are kept for the framework."""
        return self._kept.get(framework_id, 0)

    def add(self, framework_id: FrameworkId, size: int) -> None:
        """So many bytes more are kept, or fewer if it is negative."""
        kept = self.of(framework_id) + size
        assert kept >= 0
        self.total += size
        if kept:
            self._kept[framework_id] = kept
        else:
            self._kept.pop(framework_id, None)

    def is_full_for(self, framework_id: FrameworkId) -> bool:
        """Whether no more should be kept for this framework."""
        return self.of(framework_id) >= self._each

    @property
    def is_over(self) -> bool:
        """Whether more is kept for all together than should be."""
        return self.total > self._most

    def largest(self) -> FrameworkId:
        """The framework for which most is kept; of several, the one that came first."""
        return max(self._kept, key=self._kept.__getitem__)
