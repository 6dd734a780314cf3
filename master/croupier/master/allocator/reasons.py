"""Reasons why agents are not dealt to a framework, for `croupier why`.

The detail of a rejection is cheap to make in a pass. `str` puts it into words when an operator
asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.master.allocator.node import Leaf, RoleNode
from croupier.master.allocator.policies.policy import needy
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reservations import Reservation
from croupier.model.devices import DeviceNeed, slots_of
from croupier.model.durations import duration_text
from croupier.model.ids import NO_FRAMEWORK, AgentId, Role
from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.model.scalar import format_scalar


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
    RESERVED = "reserved"
    SCARCE = "scarce"
    KEPT = "kept for a needier framework"
    HELD = "held for another"
    HOLDS = "its holds"
    VOLUMES = "its volumes"
    PAST_USE = "past use"
    RESERVATIONS = "its reservations"
    BACKS_OFF = "unanswered offers"
    OFFER_FULL = "offer is full"
    GANG = "gang"
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
    MIN_RUN = "minimum run time"
    BUDGET = "budget"
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


class Text:
    """A template and its values.

    Attributes:
        role: the role that it is about, if any.
        rival: the framework that came first, if any.
    """

    __slots__ = ("_template", "_values", "rival", "role")

    def __init__(self, template: str, *values: object, role: str = "", rival: str = "") -> None:
        self._template, self._values, self.role, self.rival = template, values, role, rival

    def __str__(self) -> str:
        return self._template.format(*self._values)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too few free resources for the units of an offer."""

    unit: Resources
    least: int
    left: Resources
    total: Resources

    def __str__(self) -> str:
        units = f"{self.least} units of <{self.unit}>" if self.least > 1 else str(self.unit)
        whole = self.amounts(self.total)
        if whole:
            return f"needs {units}, but the agent has only {', '.join(whole)} in all"
        free = self.amounts(self.left)
        if not free:
            return f"needs {units}, but {free_text(self.left)}"
        return f"needs {units}, but only {', '.join(free)} is free"

    def amounts(self, room: Resources) -> list[str]:
        """Return the amounts of the resources that are short in `room`."""
        names = (*self.unit.scalars, *self.unit.ranges, *self.unit.sets)
        return [
            # A resource that `room` lacks altogether is named, too.
            str(_only(name, room)) or f"{name}:0"
            for name in names
            if _only(name, self.unit).units_within(room, self.least) < self.least
        ]


@dataclass(frozen=True, slots=True)
class DeviceShortage:
    """Enough devices in number, but not of the right type, in one group, or with free slots."""

    unit: Resources
    needs: tuple[DeviceNeed, ...]
    agent: PooledAgent
    left: Resources

    def __str__(self) -> str:
        agent, asked = self.agent, asked_text(self.unit, self.needs)
        if not agent.units_within(self.unit, self.needs, agent.whole, 1):
            return f"needs {asked}, and no devices of the agent are that"
        free = ", ".join(sorted(slots_of(self.left))) or "no device"
        return f"needs {asked}, but of its devices only {free} is free"


def asked_text(unit: Resources, needs: tuple[DeviceNeed, ...]) -> str:
    """Return what a unit needs of named devices, in words."""
    return ", ".join(map(str, needs)) or str(unit)


def _only(name: str, resources: Resources) -> Resources:
    return Resources(
        {n: milli for n, milli in resources.scalars.items() if n == name},
        {n: ranges for n, ranges in resources.ranges.items() if n == name},
        {n: items for n, items in resources.sets.items() if n == name},
    )


def free_text(left: Resources) -> Text:
    """Return how much is free."""
    return Text("only {} is free", left) if left else Text("nothing is free")


def filtered(seconds: float) -> Text:
    """Return that a filter excludes it for another `seconds`, or for this round only."""
    if seconds <= 0:
        return Text("the framework left an offer of it unused; others are offered it first")
    return Text(
        "the framework left an offer of it unused, and is not offered it for another {:.1f} s",
        seconds,
    )


def reserved(leaf: Leaf) -> Text:
    """Return that the agent is reserved for `leaf`, whose unit does not fit yet."""
    rival = leaf.framework_id
    for node in leaf.path:
        if isinstance(node, RoleNode) and needy(node):
            promised = format_amounts(node.settings.guarantee)
            text = "reserved for {}, below the guarantee of {} ({})"
            return Text(text, rival, node.role, promised, role=leaf.role, rival=rival)
    return Text("reserved for {}, which holds less", rival, role=leaf.role, rival=rival)


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation that a unit would run into.

    `time_ms`: the declared time of the unit; 0 if it has none.
    """

    reservation: Reservation
    time_ms: int
    now: float

    @property
    def role(self) -> Role:
        """The role that it is for."""
        return self.reservation.owner[1]

    @property
    def rival(self) -> str:
        """The framework that it is for; empty if it is for a role."""
        return self.reservation.owner[0]

    def __str__(self) -> str:
        each, (framework_id, role) = self.reservation, self.reservation.owner
        owner = f"role {role}" if framework_id == NO_FRAMEWORK else f"framework {framework_id}"
        what = f"reserved for {owner} ({each.name})"
        begins_s, ends = (
            each.starts_at - self.now,
            f"for another {duration_text(each.until - self.now)}",
        )
        if begins_s <= 0:
            return f"{what} {ends}"
        begins = f"{what} in {duration_text(begins_s)}"
        if not self.time_ms:
            return f"{begins}; until then it takes only tasks whose max_completion ends before"
        lasts = duration_text(self.time_ms / 1000)
        return f"{begins}; a task that may run for {lasts} would not end before"


@dataclass(frozen=True, slots=True)
class AtLimit:
    """A role's limit that leaves no headroom, with the amounts at that moment."""

    role: str
    resource: str
    held: int
    limit: int

    @classmethod
    def of(cls, node: RoleNode, resource: str) -> AtLimit:
        """Return the limit of a role as it is now."""
        return cls(node.role, resource, node.held.get(resource, 0), node.settings.limit[resource])

    def __str__(self) -> str:
        held, limit = (format_scalar(self.resource, each) for each in (self.held, self.limit))
        return f"role {self.role} holds {self.resource}:{held} of its limit of {limit}"
