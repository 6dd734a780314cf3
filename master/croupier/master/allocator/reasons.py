"""Why a framework was passed over: compact, per framework and role, for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.model.ids import AgentId, Role


class Cause(Enum):
    """What kept an agent from being dealt to a framework."""

    FILTERED = "filtered"
    DOES_NOT_FIT = "does not fit"
    IN_USE = "in use"
    NOT_USEFUL = "below the minimum useful amount"
    CONSTRAINT = "constraint"
    LIMIT = "limit"
    GUARANTEE = "guarantee"
    OUTRANKED = "outranked"
    EARMARKED = "earmarked"
    SCARCE = "scarce"
    KEPT = "kept for a needier framework"
    OFFER_FULL = "offer is full"
    SUPPRESSED = "suppressed"
    DISCONNECTED = "disconnected"
    NO_DEMAND = "demand is met"
    NO_AGENTS = "no agents"
    AGENT_AWAY = "agent is away"
    DRAINING = "agent is being drained"
    DEACTIVATED = "agent is deactivated"
    UNHEALTHY = "agent is unhealthy"
    MAKING_ROOM = "room is being made"
    PREEMPTION = "preemption"
    ELIGIBLE = "eligible"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """How many agents were passed over for one cause in the latest pass that did so.

    Attributes:
        agents: how many.
        detail: the last case, in words and numbers.
        role: the role of the framework that this is about.
        about: the agent of the last case, or the role whose limit or guarantee it was.
    """

    cause: Cause
    agents: int
    detail: str
    role: Role
    about: str = ""


class Reasons:
    """One leaf's causes; memory does not grow with the number of agents."""

    __slots__ = ("_cases",)

    def __init__(self) -> None:
        """Begin with none."""
        self._cases: dict[Cause, tuple[int, int, AgentId, object]] = {}

    def note(self, cause: Cause, pass_number: int, agent_id: AgentId, about: object) -> None:
        """Count one agent passed over; `about` is told by `str` only when somebody asks."""
        case = self._cases.get(cause)
        count = case[1] + 1 if case is not None and case[0] == pass_number else 1
        self._cases[cause] = (pass_number, count, agent_id, about)

    def clear(self) -> None:
        """Forget all: the framework was dealt to, or has changed what it wants."""
        self._cases.clear()

    def tell(self, role: Role) -> list[PassedOver]:
        """What is known, the latest first."""
        latest = sorted(self._cases.items(), key=lambda case: (-case[1][0], case[0].value))
        return [
            PassedOver(
                cause,
                count,
                f"agent {agent_id}: {about}",
                role,
                getattr(about, "role", "") or agent_id,
            )
            for cause, (_, count, agent_id, about) in latest
        ]
