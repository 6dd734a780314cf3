"""The master's request to end tasks for preemption."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.clock import Clock


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """A starving role is entitled to the resources of these tasks: end them, or the master does.

    Attributes:
        task_ids: all on one agent; some may have ended meanwhile.
        role: the role whose share they are charged to.
        grace_s: seconds from the request until the master kills the tasks.
        reason: text for people that names the starving role.
        expires_at: when the master kills the remaining tasks, seconds on `clock`.
        clock: for `expires_in_s`.
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
