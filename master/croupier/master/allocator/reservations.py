"""Reservations: from a certain time on, an agent or an amount of it is for one owner alone.

Rule: until a reservation begins, others are dealt of it only units that will have ended by then:
units with a declared time. From its begin to its end, only the owner is dealt of it. It charges
nobody, and it touches neither running tasks nor holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import is_within

if TYPE_CHECKING:
    from croupier.master.allocator.agent_pool import AgentPool
    from croupier.master.allocator.pooled_agent import PooledAgent

# A framework in one of its roles; with `NO_FRAMEWORK`, all frameworks in the role and below it.
Owner = tuple[FrameworkId, Role]
# The launch and the end of a task take time beside its declared time.
MARGIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Resources of one agent, for one owner from `starts_at` to `until`.

    Attributes:
        name: names it on its agent.
        owner: whom it is for.
        starts_at, until: seconds on the clock of the allocator's caller.
        amount: the scalars that are reserved, less those that the owner was dealt since. None
            reserves the whole agent, whatever the owner is dealt.
        gathers: the gang that it is for: no other unit of its owner is dealt it. Empty: any is.
    """

    name: str
    owner: Owner
    starts_at: float
    until: float
    amount: Resources | None = None
    gathers: str = ""

    def serves(self, framework_id: FrameworkId, role: Role) -> bool:
        """Return whether it is for this framework in this role."""
        owner, reserved_role = self.owner
        if owner == NO_FRAMEWORK:
            return is_within(role, reserved_role)
        return (owner, reserved_role) == (framework_id, role)

    def bars(
        self,
        framework_id: FrameworkId,
        role: Role,
        max_completion_ms: int,
        now: float,
        gathers: str = "",
    ) -> bool:
        """Return whether it keeps a unit, dealt now with this declared time (0: none), away.

        `gathers`: names the gang that the unit is, if room is gathered for it.
        """
        is_own = self.serves(framework_id, role) and self.gathers in ("", gathers)
        if now >= self.until or is_own:
            return False
        return now + seconds_needed(max_completion_ms) > self.starts_at

    def room(self, free: Resources) -> Resources:
        """Return the part of `free` that a unit which it bars may be dealt."""
        amount = self.amount
        if amount is None:
            return Resources()
        left = {name: max(milli - amount[name], 0) for name, milli in free.scalars.items()}
        return Resources(left, free.ranges, free.sets)

    def without(self, dealt: Resources) -> Reservation | None:
        """Return it less what its owner was dealt; None if nothing remains of its amount."""
        if self.amount is None:
            return self
        left = {name: max(m - dealt[name], 0) for name, m in self.amount.scalars.items()}
        return replace(self, amount=Resources(left)) if any(left.values()) else None


def seconds_needed(max_completion_ms: int) -> float:
    """Return how long a unit with this declared time may have its resources; 0: for ever."""
    return max_completion_ms / 1000 + MARGIN_S if max_completion_ms else inf


class Reservations:
    """The reservations of all agents; one may be made before its agent registers."""

    def __init__(self, agents: AgentPool) -> None:
        self._agents = agents

    def add(self, agent_id: AgentId, reservation: Reservation) -> None:
        """Reserve an agent, or replace its reservation of the same name. O(those of the agent)."""
        others = [each for each in self.of(agent_id) if each.name != reservation.name]
        self._agents.reserve(agent_id, (*others, reservation))

    def remove(self, agent_id: AgentId, name: str) -> None:
        """End a reservation of an agent, if it has one of that name."""
        self._agents.reserve(
            agent_id, tuple(each for each in self.of(agent_id) if each.name != name)
        )

    def of(self, agent_id: AgentId) -> tuple[Reservation, ...]:
        """Return the reservations of an agent, in the order in which they were made."""
        return self._agents.reserved.get(agent_id, ())

    def named(self, agent_id: AgentId, name: str) -> Reservation | None:
        """Return the reservation of an agent with this name, if there is one."""
        return next((each for each in self.of(agent_id) if each.name == name), None)

    def objection(
        self,
        agent_id: AgentId,
        framework_id: FrameworkId,
        role: Role,
        max_completion_ms: int,
        now: float,
    ) -> Reservation | None:
        """Return a reservation that a task on the whole agent would run into; None without.

        Those of an amount are not considered: what is offered is free of them.
        """
        for each in self.of(agent_id):
            if each.amount is None and each.bars(framework_id, role, max_completion_ms, now):
                return each
        return None


def dealt_to_owner(
    agent: PooledAgent, framework_id: FrameworkId, role: Role, dealt: Resources
) -> tuple[Reservation, ...]:
    """Return the reservations of an agent after this deal to one framework.

    The amounts of those that are for it become less by it, the first ones first.
    """
    kept: list[Reservation] = []
    for each in agent.reservations:
        if not each.serves(framework_id, role) or each.amount is None or each.gathers:
            kept.append(each)
            continue
        rest = each.without(dealt)
        if rest is not None:
            kept.append(rest)
        used = {name: min(milli, dealt[name]) for name, milli in each.amount.scalars.items()}
        dealt = dealt - Resources(used)
    return tuple(kept)
