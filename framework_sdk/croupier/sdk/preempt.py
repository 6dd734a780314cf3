"""The master wants room back."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.clock import Clock


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """Others are owed the room of these tasks: end them, or the master does.

    Attributes:
        task_ids: all on one agent; some may have ended meanwhile.
        role: whose share they are charged to.
        grace_s: how long the framework was given, when the request arrived.
        reason: for people: who is owed the room.
        expires_at: when the master kills those that are left, seconds on `clock`.
        clock: what `expires_in_s` is told by.
    """

    task_ids: tuple[str, ...]
    agent_id: str
    role: str
    grace_s: float
    reason: str
    expires_at: float = field(repr=False)
    clock: Clock = field(repr=False, compare=False)

    @property
    def expires_in_s(self) -> float:
        """Seconds until the master kills the tasks; 0 once it may have."""
        return max(0.0, self.expires_at - self.clock.now())
