"""Reasons why a framework was passed over, counted for each framework and role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from croupier.model.ids import AgentId, Role


class Cause(Enum):
    """Causes for which an agent is not dealt to a framework."""

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
    BACKS_OFF = "unanswered offers"
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
    """Agents that a framework was not dealt for one cause, in the latest pass with that cause.

    Attributes:
        agents: the number of agents.
        detail: the last case, in words and numbers.
        role: the role of the framework.
        about: the agent of the last case, or the role whose limit or guarantee it was.
        rival: the framework that came first; empty if none is named.
    """

    cause: Cause
    agents: int
    detail: str
    role: Role
    about: str = ""
    rival: str = ""


def passed_over(
    cause: Cause, agents: int, text: str, role: Role, agent_id: AgentId, detail: object
) -> PassedOver:
    """Return a reason about the role and rival that `detail` names, or else about the agent."""
    about = getattr(detail, "role", "") or agent_id
    return PassedOver(cause, agents, text, role, about, getattr(detail, "rival", ""))


# The latest pass with a cause, how many agents it passed over, the last of them, and the detail.
Case = tuple[int, int, AgentId, object]


class Reasons:
    """One leaf's causes; memory does not grow with the number of agents.

    Attributes:
        since: the number of the visit after which they were dropped last; see `profiles`.
    """

    __slots__ = ("_cases", "since")

    def __init__(self) -> None:
        self._cases: dict[Cause, Case] = {}
        self.since = 0

    def note(
        self, cause: Cause, pass_number: int, agent_id: AgentId, detail: object, agents: int = 1
    ) -> None:
        """Count agents that were passed over; `str(detail)` is called only by `report`."""
        case = self._cases.get(cause)
        count = case[1] if case is not None and case[0] == pass_number else 0
        self._cases[cause] = (pass_number, count + agents, agent_id, detail)

    def clear(self, since: int) -> None:
        """Drop all, after the framework was dealt to or changed its demand."""
        self._cases.clear()
        self.since = since

    def report(self, role: Role, misfits: Mapping[Cause, Case]) -> list[PassedOver]:
        """Return every cause, the latest first; `misfits` are counted elsewhere."""
        cases = dict(self._cases)
        for cause, case in misfits.items():
            cases[cause] = _joined(cases[cause], case) if cause in cases else case
        latest = sorted(cases.items(), key=lambda case: (-case[1][0], case[0].value))
        return [
            passed_over(cause, count, f"agent {agent_id}: {detail}", role, agent_id, detail)
            for cause, (_, count, agent_id, detail) in latest
        ]


def _joined(one: Case, other: Case) -> Case:
    """Return the later of two cases; if they are of one pass, with the agents of both."""
    if one[0] != other[0]:
        return max(one, other, key=lambda case: case[0])
    return other[0], one[1] + other[1], other[2], other[3]
