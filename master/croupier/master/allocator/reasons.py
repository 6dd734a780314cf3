"""Why a framework was passed over: compact, per framework, for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.model.ids import AgentId


class Cause(Enum):
    """What kept an agent from being dealt to a framework."""

    FILTERED = "filtered"
    DOES_NOT_FIT = "does not fit"
    NOT_USEFUL = "below the minimum useful amount"
    CONSTRAINT = "constraint"
    KEPT = "kept for a needier framework"
    SUPPRESSED = "suppressed"
    DISCONNECTED = "disconnected"
    NO_DEMAND = "demand is met"
    NO_AGENTS = "no agents"
    OUTRANKED = "outranked"


@dataclass(slots=True)
class PassedOver:
    """How many agents were passed over for one cause in the latest pass that did so.

    Attributes:
        detail: the last case, in words and numbers.
    """

    cause: Cause
    agents: int
    detail: str


class Reasons:
    """One framework's causes; memory does not grow with the number of agents."""

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

    def tell(self) -> list[PassedOver]:
        """What is known, the latest first."""
        latest = sorted(self._cases.items(), key=lambda case: (-case[1][0], case[0].value))
        return [
            PassedOver(cause, count, f"agent {agent_id}: {about}")
            for cause, (_, count, agent_id, about) in latest
        ]
