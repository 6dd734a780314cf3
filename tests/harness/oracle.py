"""An oracle for the allocator, written from its rules alone.

`Oracle` keeps its own state: outstanding offers, tasks, refusals, connected frameworks.
`overlooked` finds frameworks that could use an agent that the allocator will not visit.
`faults` finds faults of a grant. Both query the engine for free resources and demands only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from croupier.master.allocator import Allocator, Grant, Rules
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings

Amounts = dict[str, int]


@dataclass
class Member:
    """A framework as it sees itself."""

    framework_id: FrameworkId
    roles: tuple[Role, ...]
    is_connected: bool = True
    suppressed: set[Role] = field(default_factory=set)


@dataclass(eq=False)
class Task:
    grant_of: tuple[FrameworkId, Role, AgentId]
    resources: Resources


@dataclass
class Refusal:
    amount: Resources
    until: float


def add(held: Amounts, amount: Resources, sign: int = 1) -> None:
    for name, milli in amount.scalars.items():
        held[name] = held.get(name, 0) + sign * milli


class Oracle:
    """The agents and frameworks of one allocator."""

    def __init__(self, allocator: Allocator, rules: Rules) -> None:
        self.allocator, self.rules = allocator, rules
        self.tree, self.agents = allocator._tree, allocator._agents
        self.now = 0.0
        # Number of checks of a framework against an agent that is not dirty.
        self.judged = 0
        self.totals: dict[AgentId, Resources] = {}
        self.facts: dict[AgentId, dict[str, str]] = {}
        self.away: set[AgentId] = set()
        self.members: dict[FrameworkId, Member] = {}
        self.offers: list[Grant] = []
        self.tasks: list[Task] = []
        self.refusals: dict[tuple[FrameworkId, Role, AgentId], list[Refusal]] = {}
        self.settings: dict[Role, RoleSettings] = {}

    def faults(self, grant: Grant) -> Iterator[str]:
        """Yield the faults of a grant that was just made."""
        member = self.members[grant.framework_id]
        if not self.is_willing(member, grant.role):
            yield "it wants none"
        if grant.agent_id in self.away:
            yield "the agent is away"
        place = (grant.framework_id, grant.role, grant.agent_id)
        for refusal in self.refusals.get(place, ()):
            if refusal.until > self.now and grant.resources <= refusal.amount:
                yield f"refused until {refusal.until}"
        for demand in self.demands_in(member, grant.role):
            number = dict(grant.units).get(demand.unit)
            if number is None:
                continue
            if demand.max_per_offer is not None and number > demand.max_per_offer:
                yield "too many units"
            is_merged = self.rules.order == "spread"
            if number < min(demand.min_per_offer, self.remaining(place, demand)) and not is_merged:
                yield "too few units"
            if not self.passes(grant.agent_id, demand):
                yield "a constraint"
        if grant.units and {unit for unit, _ in grant.units} - {
            demand.unit for demand in self.demands_in(member, grant.role)
        }:
            yield "it has no such demand"

    def overlooked(self) -> Iterator[str]:
        """Yield the frameworks that could use an agent that is not dirty."""
        for agent_id, total in self.totals.items():
            free = self.allocator.queries.free(agent_id)
            if agent_id in self.away or not free:
                continue
            for member in self.members.values():
                for role in member.roles:
                    if self.is_willing(member, role):
                        place = (member.framework_id, role, agent_id)
                        self.judged += 1
                        if self.could_use(place, free, total):
                            yield f"{place} of {free}"

    def is_willing(self, member: Member, role: Role) -> bool:
        return member.is_connected and role in member.roles and role not in member.suppressed

    def demands_in(self, member: Member, role: Role) -> list[Demand]:
        declared = self.allocator.queries.demands(member.framework_id)
        return [each for each in declared if (each.role or member.roles[0]) == role]

    def could_use(
        self, place: tuple[FrameworkId, Role, AgentId], free: Resources, total: Resources
    ) -> bool:
        framework_id, role, _ = place
        free = self.without_earmark(place, free)
        if self.is_reserved(place):
            return False
        if not self.allocator.queries.demands(framework_id):
            room = self.trimmed(role, free)
            useful = room["cpus"] >= 10 or room["mem"] >= 32_000
            return useful and not self.refused(place, room) and not self.is_withheld(place, NOTHING)
        wanted = self.demands_in(self.members[framework_id], role)
        if len(wanted) > 1 and any(
            self.refused(place, demand.unit.carve(total, 1))
            for demand in wanted
            if demand.unit.units_within(total, 1)
        ):
            # Several shapes allow many offers; the framework refused one of them.
            return False
        return any(self.could_use_shape(place, demand, free) for demand in wanted)

    def could_use_shape(
        self, place: tuple[FrameworkId, Role, AgentId], demand: Demand, free: Resources
    ) -> bool:
        left = self.remaining(place, demand)
        if not left or not self.passes(place[2], demand) or self.is_withheld(place, demand.unit):
            return False
        mine = [
            each for each in self.offers if (each.framework_id, each.role, each.agent_id) == place
        ]
        if demand.max_per_offer is not None:
            if mine:
                return False
            left = min(left, demand.max_per_offer)
        units = demand.unit.units_within(free, left)
        for name, room in self.headroom(place[1]).items():
            if demand.unit[name]:
                units = min(units, room // demand.unit[name])
        # Offers of a demand that was declared again may not count for it.
        least = min(demand.min_per_offer, demand.count or demand.min_per_offer)
        if units < least:
            return False
        # A refusal of fewer units may no longer hold; it is checked again in time.
        return not self.refused(place, demand.unit.carve(free, least))

    def passes(self, agent_id: AgentId, demand: Demand) -> bool:
        return all(each.holds(self.facts[agent_id]) for each in demand.constraints)

    def remaining(self, place: tuple[FrameworkId, Role, AgentId], demand: Demand) -> int:
        """Return how many units are demanded and not offered."""
        if demand.count is None:
            return 10**6
        on_offer = sum(
            number
            for offer in self.offers
            if (offer.framework_id, offer.role) == place[:2]
            for unit, number in offer.units
            if unit == demand.unit
        )
        return max(demand.count - on_offer, 0)

    def refused(self, place: tuple[FrameworkId, Role, AgentId], candidate: Resources) -> bool:
        """Return whether a filter holds: by time, or while an offer of the agent is outstanding.

        Ranges are ignored: the numbers in an offer depend on the offers of other frameworks.
        """
        candidate = Resources(candidate.scalars)
        is_asked = any(offer.agent_id == place[2] for offer in self.offers)
        return any(
            candidate <= Resources(refusal.amount.scalars)
            and (refusal.until > self.now or is_asked)
            for refusal in self.refusals.get(place, ())
        )

    def without_earmark(
        self, place: tuple[FrameworkId, Role, AgentId], free: Resources
    ) -> Resources:
        mark = self.agents.agents[place[2]].earmark
        if mark is None or (mark.leaf.framework_id, mark.leaf.role) == place[:2]:
            return free
        owner = self.members[mark.leaf.framework_id]
        role, named = mark.leaf.role, (mark.leaf.framework_id, mark.leaf.role, place[2])
        wanted = self.demands_in(owner, role)
        wants = not self.allocator.queries.demands(owner.framework_id) or any(
            self.remaining(named, demand) for demand in wanted
        )
        is_parked = mark.leaf.parked_by is not None
        if not self.is_willing(owner, role) or not wants or is_parked:
            return free
        scalars = {n: max(m - mark.amount[n], 0) for n, m in free.scalars.items()}
        return Resources(scalars, free.ranges)

    def is_reserved(self, place: tuple[FrameworkId, Role, AgentId]) -> bool:
        """Return whether the agent is reserved for another framework."""
        return any(
            leaf.reservations.has(place[2], self.now)
            and (leaf.framework_id, leaf.role) != place[:2]
            for leaf in self.tree.leaves.values()
        )

    def is_withheld(self, place: tuple[FrameworkId, Role, AgentId], unit: Resources) -> bool:
        """Return whether scarce resources of the agent are withheld for another framework."""
        free, total = self.allocator.queries.free(place[2]), self.totals[place[2]]
        if not free["gpus"] or unit["gpus"]:
            return False
        for member in self.members.values():
            for role in member.roles:
                asker = (member.framework_id, role, place[2])
                for demand in (
                    self.demands_in(member, role) if self.is_willing(member, role) else ()
                ):
                    if not demand.unit["gpus"] or not self.remaining(asker, demand):
                        continue
                    least = min(demand.min_per_offer, self.remaining(asker, demand))
                    fits = demand.unit.units_within(total, 1) and self.passes(place[2], demand)
                    room = self.headroom(role)
                    barred = any(
                        demand.unit[n] * least > room.get(n, 10**9) for n in demand.unit.scalars
                    )
                    if fits and not barred:
                        return True
        return False

    def headroom(self, role: Role) -> Amounts:
        """Return the headroom under all limits at and above the role."""
        room: Amounts = {}
        for above, settings in self.settings.items():
            if role == above or role.startswith(f"{above}/"):
                for name, most in settings.limit.items():
                    left = max(most - self.counted(above, name), 0)
                    room[name] = min(left, room.get(name, left))
        return room

    def counted(self, role: Role, name: str) -> int:
        """Return the usage that a role's limit counts: tasks, and offers up to the demand."""
        total = 0
        places = {(leaf.framework_id, leaf.role) for leaf in self.tree.leaves.values()}
        for framework_id, each in places:
            if each != role and not each.startswith(f"{role}/"):
                continue
            used, offered = dict[str, int](), dict[str, int]()
            for task in self.tasks:
                if task.grant_of[:2] == (framework_id, each):
                    add(used, task.resources)
            for offer in self.offers:
                if (offer.framework_id, offer.role) == (framework_id, each):
                    add(offered, offer.resources)
            member = self.members[framework_id]
            counts = offered.get(name, 0)
            if self.allocator.queries.demands(framework_id):
                wanted = self.demands_in(member, each) if each in member.roles else []
                if all(demand.count is not None for demand in wanted):
                    most = sum(demand.unit[name] * (demand.count or 0) for demand in wanted)
                    counts = min(counts, most)
            total += used.get(name, 0) + counts
        return total

    def trimmed(self, role: Role, free: Resources) -> Resources:
        """Return the part of `free` within all limits; nothing if a limit is used up."""
        room = self.headroom(role)
        for above, settings in self.settings.items():
            if role == above or role.startswith(f"{above}/"):
                for name, most in settings.limit.items():
                    if most and self.counted(above, name) >= most:
                        return NOTHING
        return Resources({n: min(m, room.get(n, m)) for n, m in free.scalars.items()}, free.ranges)
