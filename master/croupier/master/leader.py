"""Who leads. One master alone always does."""

from __future__ import annotations

from typing import Protocol


class Leader(Protocol):
    """Tells whether this master may decide."""

    @property
    def is_me(self) -> bool:
        """Whether this master leads now."""
        ...


class SoleLeader:
    """The only master there is."""

    @property
    def is_me(self) -> bool:
        """Always."""
        return True
