"""The plan of a preemption: the victims that free resources for a starving framework.

A tournament from the root finds the victims. Each round takes the child of the largest share over
entitlement, as long as that is more than 1, down to a framework. Of its holdings the newest goes
first, offers before tasks. A victim is legal on two conditions. Its framework and every role above
it, up to where the paths part, keep their entitlements and guarantees. The starving side would end
no higher there than the other side was.

A guarantee counts as an entitlement: to meet one, the others keep the rest, in proportion to their
entitlements without it. The rest depends on the resources that the role's tasks use: a guarantee of
half the cpus may take all of the memory.

The first legal victim decides the agent. A plan frees one unit on one agent; victims that turn out
not to be needed are dropped from it.

Each preemption lowers the total shortfall from guarantees; or it keeps that, and lowers the total
shortfall from entitlements by at least a unit's share. Victims add to neither, as they never fall
below theirs. So preemptions between external changes are finite, and two frameworks cannot take
from each other in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from croupier.master.allocator import limits
from croupier.master.allocator.node import Branch, Leaf, Node, diverging
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.starvation import ShareProjection, Starving, is_below, may_preempt
from croupier.master.allocator.tree import Tree
from croupier.model.devices import Inventory, Slots, slots_as_resources, slots_of
from croupier.model.ids import AgentId
from croupier.model.resources import Resources, sum_of


@dataclass(frozen=True, slots=True)
class Holding:
    """A task or an offer that a framework could give up.

    Attributes:
        key: the id of the task or the offer.
        since: when it was launched or offered.
        is_offer: whether it is an offer, or the unused part of a hold: no task uses it yet.
        is_hold: whether a part of it can be taken.
        part_of: the key of the holding that includes this one, as an executor includes its tasks;
            empty if none does.
        protected_until: it is no victim before then.
    """

    leaf: Leaf
    agent_id: AgentId
    resources: Resources
    key: str
    since: float
    is_offer: bool = False
    is_hold: bool = False
    part_of: str = ""
    protected_until: float = 0.0

    def without(self, taken: Iterable[Holding]) -> Holding:
        """Return what it frees beside those of its parts that are taken already."""
        parts = sum_of(
            each.resources for each in taken if each.leaf is self.leaf and each.part_of == self.key
        )
        return replace(self, resources=self.resources - parts) if parts else self


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """A way to free one unit for a starving framework, on one agent.

    Attributes:
        room: the resources to earmark for the framework there.
        victims: the holdings to take back; all of them are needed.
    """

    starving: Starving
    agent_id: AgentId
    room: Resources
    victims: tuple[Holding, ...]


@dataclass(slots=True)
class Search:
    """The inputs of plans, and the remaining budget of comparisons.

    Attributes:
        ask: returns the holdings of a framework in any order, without those being taken back.
        room: returns the resources of an agent that are or will be free and are not earmarked;
            None if the agent is earmarked for another framework.
        is_on: whether there is preemption where no role's setting decides.
        effort: how many comparisons of shares may still be made, so that a search ends in time.
    """

    tree: Tree
    projection: ShareProjection
    ask: Callable[[Leaf], Iterable[Holding]]
    room: Callable[[Leaf, AgentId], Resources | None]
    agents: Mapping[AgentId, PooledAgent]
    is_on: bool
    effort: int
    _holdings: dict[Leaf, dict[AgentId, list[Holding]]] = field(default_factory=dict)

    def spend(self) -> bool:
        """Count one comparison; return whether it may be made."""
        self.effort -= 1
        return self.effort >= 0

    def holdings(self, leaf: Leaf) -> dict[AgentId, list[Holding]]:
        """Return the holdings that the framework could give up, by agent. Cached."""
        known = self._holdings.get(leaf)
        if known is None:
            known = self._holdings[leaf] = {}
            for each in self.ask(leaf):
                known.setdefault(each.agent_id, []).append(each)
        return known

    def forget(self, leaf: Leaf) -> None:
        """Drop the cached holdings of a framework, which is to give some up."""
        self._holdings.pop(leaf, None)


def plan(search: Search, starving: Starving) -> PreemptionPlan | None:
    """Return how to free one more unit of the framework's demand; None if no way was found.

    Only offers are taken back if that is enough. O(frameworks + their holdings), within the
    effort of `search`.
    """
    for pending in starving.wanted:
        if not pending.left:
            continue
        for with_tasks in (False, True):
            found = _ShapeSearch(search, starving, pending, with_tasks).run()
            if found is not None:
                return found
    return None


class _ShapeSearch:
    """The search for one unit of one shape."""

    def __init__(
        self, search: Search, starving: Starving, pending: PendingDemand, with_tasks: bool
    ) -> None:
        self._search, self._starving, self._pending = search, starving, pending
        self._leaf, self._with_tasks = starving.leaf, with_tasks
        self._unit, self._least = pending.demand.unit, pending.least
        self._needed = pending.needed
        # All that one plan takes of a hold.
        self._wanted = Resources(self._needed)
        self._on_path = set(self._leaf.path)
        self._projection = search.projection

    def run(self) -> PreemptionPlan | None:
        room = limits.headroom(self._leaf)
        if limits.units_within(self._unit.scalars, room, self._least) < self._least:
            return None
        tried: set[AgentId] = set()
        for first in self._first_victims():
            if self._search.effort <= 0:
                return None
            if first.agent_id in tried or not self._is_legal(first):
                continue
            tried.add(first.agent_id)
            if self._can_use(first.agent_id):
                found = self._on_agent(first.agent_id)
                if found is not None:
                    return found
        return None

    def _on_agent(self, agent_id: AgentId) -> PreemptionPlan | None:
        free, agent = self._search.room(self._leaf, agent_id), self._search.agents[agent_id]
        assert free is not None
        chosen: list[Holding] = []
        for victim in self._victims(agent_id):
            if self._fits(agent, free):
                break
            victim = victim.without(chosen)
            if not self._is_legal(victim) or not self._helps(victim, free):
                continue
            self._projection.change(victim.leaf, victim.resources.scalars, -1)
            free = free + victim.resources
            chosen.append(victim)
        for victim in chosen:
            self._projection.change(victim.leaf, victim.resources.scalars)
        if not self._fits(agent, free) or not chosen:
            return None
        needed = []
        for victim in chosen:
            rest = free - victim.resources
            if self._fits(agent, rest):
                free = rest
            else:
                needed.append(victim)
        # Ranges are not earmarked: the numbers that will come free are unknown.
        total = agent.whole
        room = Resources({n: milli for n, milli in self._needed.items() if n in total.scalars})
        room = room + slots_as_resources(self._slots(agent, free))
        return PreemptionPlan(self._starving, agent_id, room, tuple(needed))

    def _can_use(self, agent_id: AgentId) -> bool:
        agent = self._search.agents[agent_id]
        return (
            agent.is_active
            and agent.serves(self._leaf)
            and self._fits(agent, agent.whole)
            and all(each.holds(agent.facts) for each in self._pending.demand.constraints)
            and self._search.room(self._leaf, agent_id) is not None
        )

    def _fits(self, agent: PooledAgent, free: Resources) -> bool:
        needs = self._pending.needs
        return agent.units_within(self._unit, needs, free, self._least) >= self._least

    def _slots(self, agent: PooledAgent, free: Resources) -> list[Slots]:
        """Return the slots of named devices that the unit takes; none if `free` has too few."""
        if agent.inventory is None:
            return []
        needs = agent.inventory.needs(self._unit, self._pending.needs)
        parts = agent.inventory.parts(free, needs, self._least) if needs else []
        return [each for unit in parts for each in unit] if len(parts) == self._least else []

    def _of_hold(self, hold: Holding) -> Resources:
        """Return the part of what is unused of a hold that the unit can use."""
        part, agent = self._wanted.within(hold.resources), self._search.agents[hold.agent_id]
        if agent.inventory is None:
            return part
        whole = part + slots_as_resources(self._slots(agent, hold.resources))
        return agent.inventory.consistent(whole)

    def _helps(self, victim: Holding, free: Resources) -> bool:
        """Return whether the victim has a resource that is still short."""
        slots, inventory = slots_of(victim.resources), self._inventory(victim.agent_id)
        if inventory is not None and inventory.serves(slots, self._unit, self._pending.needs):
            # Devices may be enough in number, and not in one group.
            return True
        for name, milli in self._needed.items():
            is_named = inventory is not None and name in inventory.kinds
            ranges = name in victim.resources.ranges
            has_some = (victim.resources[name] and not is_named) or ranges
            if has_some and (ranges or free[name] < milli):
                return True
        return False

    def _inventory(self, agent_id: AgentId) -> Inventory | None:
        return self._search.agents[agent_id].inventory

    def _is_legal(self, victim: Holding) -> bool:
        """Return whether the victim may be taken back; see the docstring of this module."""
        if not self._search.spend():
            return False
        projection, taken = self._projection, victim.resources.scalars
        top, mine = diverging(victim.leaf, self._leaf)
        floor = (1, 1)
        if self._starving.by_guarantee:
            assert mine.parent is not None
            floor = projection.left_by_guarantees(mine.parent)
        for node in victim.leaf.path[: victim.leaf.path.index(top) + 1]:
            if is_below(projection.satisfaction(node, taken, -1), floor):
                return False
            if projection.is_needy(node, taken, -1):
                return False
        if self._starving.by_guarantee:
            return True
        after = projection.satisfaction(mine, self._needed)
        return not is_below(projection.satisfaction(top), after)

    def _first_victims(self) -> Iterator[Holding]:
        """Yield the holdings that could be taken first, in the order of the tournament."""
        for leaf in self._in_order(self._search.tree.root, None):
            yield from reversed(self._holdings(leaf, None))

    def _victims(self, agent_id: AgentId) -> Iterator[Holding]:
        """Yield holdings on one agent in the order of the tournament, as projected so far."""
        root = self._search.tree.root
        waiting = {leaf: self._holdings(leaf, agent_id) for leaf in self._in_order(root, None)}
        waiting = {leaf: holdings for leaf, holdings in waiting.items() if holdings}
        while waiting and self._search.effort > 0:
            here = {node for leaf in waiting for node in leaf.path}
            leaf = next(self._in_order(root, here), None)
            if leaf is None:
                return
            yield waiting[leaf].pop()
            if not waiting[leaf]:
                del waiting[leaf]

    def _in_order(self, role: Branch, among: set[Node] | None) -> Iterator[Leaf]:
        """Yield frameworks that may give something up, the most satisfied first."""
        ranked: list[tuple[float, int, Node]] = []
        for node in role.below():
            is_out = among is not None and node not in among
            if node is self._leaf or node.weighted_direction is None or is_out:
                continue
            if not self._search.spend():
                break
            share, whole = self._projection.satisfaction(node)
            is_over = share > whole or (share and self._starving.by_guarantee)
            if is_over or node in self._on_path:
                ranked.append((-share / whole, node.arrival, node))
        for _, _, node in sorted(ranked, key=lambda each: each[:2]):
            if isinstance(node, Leaf):
                yield node
            elif isinstance(node, Branch):
                yield from self._in_order(node, among)

    def _holdings(self, leaf: Leaf, agent_id: AgentId | None) -> list[Holding]:
        """Return the holdings that the leaf could give up, the first victim last."""
        if not may_preempt(leaf, self._search.is_on):
            return []
        by_agent = self._search.holdings(leaf)
        if agent_id is None:
            known = [each for holdings in by_agent.values() for each in holdings]
        else:
            known = by_agent.get(agent_id, [])
        holdings = [
            replace(each, resources=self._of_hold(each)) if each.is_hold else each
            for each in known
            if self._with_tasks or each.is_offer
        ]
        holdings.sort(key=lambda each: (each.is_offer, each.since, each.key))
        return holdings
