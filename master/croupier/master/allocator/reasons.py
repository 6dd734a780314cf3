"""Reasons why agents are not dealt to a framework, for `croupier why`."""

from __future__ import annotations

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
    """Agents that are not dealt to a framework, for one cause.

    Attributes:
        agents: the number of agents.
        detail: one case, in words and numbers.
        role: the role of the framework.
        about: the agent of that case, or the role whose limit or guarantee it was.
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
