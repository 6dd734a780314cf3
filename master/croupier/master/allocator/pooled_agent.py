"""An agent as the allocator sees it, and what is kept of it for one framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.master.allocator.filters import Filters
from croupier.master.allocator.node import Leaf, RoleNode
from croupier.master.allocator.profiles import Profile
from croupier.master.allocator.reservations import Reservation
from croupier.model.devices import (
    DeviceNeed,
    Inventory,
    Parts,
    slots_as_resources,
    units_with_devices,
)
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import Resources, sum_of


@dataclass(frozen=True, slots=True)
class Useful:
    """The minimum offer without declared demand: one of these amounts, in thousandths."""

    cpus: int = 10
    mem: int = 32_000

    def holds(self, free: Resources) -> bool:
        """Return whether `free` is worth offering to a framework that declared no demand."""
        return free["cpus"] >= self.cpus or free["mem"] >= self.mem


@dataclass(frozen=True, slots=True)
class Earmark:
    """Resources freed on an agent for one framework; no other is dealt them before `until`."""

    leaf: Leaf
    amount: Resources
    until: float

    def without(self, dealt: Resources) -> Earmark | None:
        """Return the earmark less `dealt`, which its framework got; None if nothing remains."""
        amount = self.amount.beside(dealt)
        return Earmark(self.leaf, amount, self.until) if amount.scalars else None


@dataclass(slots=True, eq=False)
class PooledAgent:
    """An agent as the allocator sees it, or a hold, which is dealt like an agent of its own.

    Attributes:
        total: its resources, without those of its holds.
        facts: its attributes and hostname as text, for constraints.
        is_active: whether it may be dealt.
        filters: the filters that frameworks have on it.
        tasks: how many tasks of each framework use it.
        earmark: resources for one framework alone; set by `AgentPool.earmark`.
        reservations: set by `AgentPool.reserve`; a hold has none.
        is_dealt: whether it was dealt since the last launch or release on it; while so, its round
            goes on.
        is_waited_for: whether a framework waits for the end of the round.
        profile, profile_version: kept by `profiles`.
        owner: of a hold, the leaf that is charged for its unused part; None for an agent.
        held_role: the role for which it is held; None if it is for the owner alone.
        cut_from: of a hold, its agent, with which it shares `tasks`.
        holds: the holds that were cut from it.
        is_kept: of a hold, whether it is never dealt.
        inventory: the agent's named devices; None if it has none.
    """

    agent_id: AgentId
    total: Resources
    facts: Mapping[str, str]
    free: Resources = field(init=False)
    is_active: bool = True
    filters: Filters = field(default_factory=Filters)
    tasks: dict[FrameworkId, int] = field(default_factory=dict)
    earmark: Earmark | None = None
    reservations: tuple[Reservation, ...] = ()
    is_dealt: bool = False
    is_waited_for: bool = False
    profile: Profile | None = None
    profile_version: int = -1
    owner: Leaf | None = None
    held_role: RoleNode | None = None
    cut_from: PooledAgent | None = None
    holds: dict[AgentId, PooledAgent] = field(default_factory=dict)
    is_kept: bool = False
    inventory: Inventory | None = None

    def __post_init__(self) -> None:
        self.free = self.total

    @property
    def held_for(self) -> str:
        """Whom a hold is for, in words."""
        assert self.owner is not None
        if self.held_role is None:
            return f"framework {self.owner.framework_id}"
        return f"role {self.held_role.role}"

    @property
    def whole(self) -> Resources:
        """Its resources with those of its holds. O(holds)."""
        return sum_of([self.total, *(hold.total for hold in self.holds.values())])

    def serves(self, leaf: Leaf) -> bool:
        """Return whether the leaf may be dealt this agent or hold."""
        if self.held_role is not None:
            return self.held_role in leaf.path
        return self.owner is None or self.owner is leaf

    def units_within(
        self, unit: Resources, needs: tuple[DeviceNeed, ...], room: Resources, most: int
    ) -> int:
        """Return how many units fit in a part of this agent, at most `most`.

        `needs`: what one needs of named devices; empty if any will do.
        """
        units = unit.units_within(room, most)
        if not units or (self.inventory is None and not needs):
            return units
        return units_with_devices(self.inventory, unit, needs, room, units)

    def carve(
        self, unit: Resources, needs: tuple[DeviceNeed, ...], room: Resources, units: int
    ) -> tuple[Resources, list[Parts]]:
        """Return as many units out of a part of this agent, and the devices of each.

        Raises ValueError if that has less.
        """
        amount = unit.carve(room, units)
        if self.inventory is None:
            return amount, []
        needs = self.inventory.needs(unit, needs)
        parts = self.inventory.parts(room, needs, units) if needs else []
        return amount + slots_as_resources(each for part in parts for each in part), parts

    def count_tasks(self, framework_id: FrameworkId, number: int) -> None:
        """Add tasks of a framework; a negative number takes them away."""
        left = self.tasks.get(framework_id, 0) + number
        if left > 0:
            self.tasks[framework_id] = left
        else:
            self.tasks.pop(framework_id, None)
