"""The course of an update."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RolloutState(StrEnum):
    """What an update does."""

    ROLLING = "rolling"
    ROLLING_BACK = "rolling back"
    DONE = "done"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether it has an end, good or bad."""
        return self in (RolloutState.DONE, RolloutState.ROLLED_BACK, RolloutState.FAILED)


@dataclass(slots=True)
class Rollout:
    """The latest update.

    Attributes:
        version: the number of the version that was applied.
        reason: why it failed.
    """

    version: int
    state: RolloutState
    began_at: float
    is_paused: bool = False
    reason: str = ""
