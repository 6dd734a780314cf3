"""What to take back for a framework that starves, and from whom: never below an entitlement.

Victims are found by a tournament from the root: the child of the largest share over
entitlement, so long as that is more than 1, down to a framework, and of it what it has had
for the shortest time; offers before tasks. A victim is legal if its framework and every role
above it, up to where the paths part, would still have what they are entitled to and what they
are guaranteed, and if where the paths part the starving side would end no higher than the
other side was. A guarantee is an entitlement too: to meet one, the others are left what it
leaves them, in proportion to what they would be entitled to without it. What it leaves depends
on what the role's tasks use: a guarantee of half the cpus may take all of the memory.

The first legal victim decides the agent: room for one unit is made on one agent, and what was
not needed for it is put back.

Each preemption lowers what is missing of guarantees; or leaves that as it is and lowers the
sum of what frameworks lack, by at least a unit's share, as victims lack nothing before and
after. So preemptions between changes from outside are finite, and no two frameworks take
from each other in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from croupier.master.allocator import limits
from croupier.master.allocator.agent_pool import PooledAgent
from croupier.master.allocator.node import Leaf, Node, RoleNode, diverging
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.share_projection import ShareProjection, is_below, may_preempt
from croupier.master.allocator.starvation import Starving
from croupier.master.allocator.tree import Tree
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

_WHOLE = (1, 1)


@dataclass(frozen=True, slots=True)
class Holding:
    """What a framework has of an agent and could be asked to give back.

    Attributes:
        key: the id of the task or the offer.
        since: when it was launched or offered.
        is_offer: whether it is an offer, which nobody uses yet.
    """

    leaf: Leaf
    agent_id: AgentId
    resources: Resources
    key: str
    since: float
    is_offer: bool = False


class Holdings:
    """What frameworks have, by framework and agent; asked for once for each framework."""

    def __init__(self, ask: Callable[[Leaf], Iterable[Holding]]) -> None:
        """`ask` tells all that a framework could give up, in any order."""
        self._ask = ask
        self._known: dict[Leaf, dict[AgentId, list[Holding]]] = {}

    def of(self, leaf: Leaf) -> dict[AgentId, list[Holding]]:
        """What the framework has, by agent."""
        known = self._known.get(leaf)
        if known is None:
            known = self._known[leaf] = {}
            for each in self._ask(leaf):
                known.setdefault(each.agent_id, []).append(each)
        return known

    def forget(self, leaf: Leaf) -> None:
        """Ask anew: it is to give something up."""
        self._known.pop(leaf, None)


@dataclass(slots=True)
class Effort:
    """How many comparisons of shares a look may make yet, so that it ends in time."""

    left: int

    def spend(self) -> bool:
        """Make one; whether it may be made."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Room for one unit of a starving framework, on one agent.

    Attributes:
        room: what is to be kept for the framework there.
        victims: what is to be taken back for it; none that is not needed.
    """

    starving: Starving
    agent_id: AgentId
    room: Resources
    victims: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Means:
    """What a plan is made from.

    Attributes:
        holdings: what frameworks have, without what they give up already.
        room: what is free on an agent or will be, and is kept for nobody else; None if the
            agent is out of the question for this framework.
        is_on: whether there is preemption where no role says otherwise.
        effort: what the search may cost yet.
    """

    tree: Tree
    projection: ShareProjection
    holdings: Holdings
    room: Callable[[Leaf, AgentId], Resources | None]
    agents: Mapping[AgentId, PooledAgent]
    is_on: bool
    effort: Effort


def plan(means: Means, starving: Starving) -> Plan | None:
    """How to make room for one more unit of what the framework wants; None if there is no way.

    Offers alone are taken back if that is enough. O(frameworks + what they hold), within the
    effort of `means`: beyond it there is no way either, for now.
    """
    for want in starving.leaf.pending or ():
        if not want.left:
            continue
        for with_tasks in (False, True):
            found = _Search(means, starving, want, with_tasks).run()
            if found is not None:
                return found
    return None


class _Search:
    """The search for one unit of one shape."""

    def __init__(
        self, means: Means, starving: Starving, want: PendingDemand, with_tasks: bool
    ) -> None:
        self._means, self._starving, self._want = means, starving, want
        self._leaf = starving.leaf
        self._with_tasks = with_tasks
        self._unit, self._least = want.demand.unit, want.least
        self._needed = {name: m * self._least for name, m in self._unit.scalars.items()}
        self._on_path = set(self._leaf.path)
        self._projection = means.projection

    def run(self) -> Plan | None:
        room = limits.headroom(self._leaf)
        if limits.units_within(self._unit.scalars, room, self._least) < self._least:
            return None
        tried: set[AgentId] = set()
        for first in self._firsts():
            if self._means.effort.left <= 0:
                return None
            if first.agent_id in tried or not self._is_legal(first):
                continue
            tried.add(first.agent_id)
            if self._can_use(first.agent_id):
                found = self._on_agent(first.agent_id)
                if found is not None:
                    return found
        return None

    def _on_agent(self, agent_id: AgentId) -> Plan | None:
        free = self._means.room(self._leaf, agent_id)
        assert free is not None
        chosen: list[Holding] = []
        for victim in self._victims(agent_id):
            if self._fits(free):
                break
            if not self._is_legal(victim) or not self._helps(victim, free):
                continue
            self._projection.change(victim.leaf, victim.resources.scalars, -1)
            free = free + victim.resources
            chosen.append(victim)
        for victim in chosen:
            self._projection.change(victim.leaf, victim.resources.scalars)
        if not self._fits(free) or not chosen:
            return None
        needed = []
        for place, victim in enumerate(chosen):
            rest = free - victim.resources
            if self._fits(rest):
                free = rest
            else:
                needed.append(chosen[place])
        # What agents hold as ranges is not kept: which numbers come free is not known.
        total = self._means.agents[agent_id].total
        room = Resources({n: milli for n, milli in self._needed.items() if n in total.scalars})
        return Plan(self._starving, agent_id, room, tuple(needed))

    def _can_use(self, agent_id: AgentId) -> bool:
        agent = self._means.agents[agent_id]
        return (
            agent.is_active
            and self._unit.units_within(agent.total, self._least) >= self._least
            and all(each.holds(agent.facts) for each in self._want.demand.constraints)
            and self._means.room(self._leaf, agent_id) is not None
        )

    def _fits(self, free: Resources) -> bool:
        return self._unit.units_within(free, self._least) >= self._least

    def _helps(self, victim: Holding, free: Resources) -> bool:
        """Whether the victim has of what is short."""
        for name, milli in self._needed.items():
            ranges = name in victim.resources.ranges
            if (victim.resources[name] or ranges) and (ranges or free[name] < milli):
                return True
        return False

    def _is_legal(self, victim: Holding) -> bool:
        """See the docstring of this module."""
        if not self._means.effort.spend():
            return False
        projection, taken = self._projection, victim.resources.scalars
        top, mine = diverging(victim.leaf, self._leaf)
        path = victim.leaf.path[: victim.leaf.path.index(top) + 1]
        floor = _WHOLE
        if self._starving.by_guarantee:
            assert mine.parent is not None
            floor = projection.left_by_guarantees(mine.parent)
        for node in path:
            if is_below(projection.satisfaction(node, taken, -1), floor):
                return False
            if projection.is_needy(node, taken, -1):
                return False
        if self._starving.by_guarantee:
            return True
        after = projection.satisfaction(mine, self._needed)
        return not is_below(projection.satisfaction(top), after)

    def _firsts(self) -> Iterator[Holding]:
        """What could be taken first, in the order of the tournament."""
        for leaf in self._in_order(self._means.tree.root, None):
            yield from reversed(self._of(leaf, None))

    def _victims(self, agent_id: AgentId) -> Iterator[Holding]:
        """Holdings on one agent in the order of the tournament, by what is imagined so far."""
        root = self._means.tree.root
        waiting = {leaf: self._of(leaf, agent_id) for leaf in self._in_order(root, None)}
        waiting = {leaf: holdings for leaf, holdings in waiting.items() if holdings}
        while waiting and self._means.effort.left > 0:
            here = {node for leaf in waiting for node in leaf.path}
            leaf = next(self._in_order(root, here), None)
            if leaf is None:
                return
            yield waiting[leaf].pop()
            if not waiting[leaf]:
                del waiting[leaf]

    def _in_order(self, pool: RoleNode, among: set[Node] | None) -> Iterator[Leaf]:
        """Frameworks that may give something up, the most satisfied first; those `among` only."""
        ranked: list[tuple[float, int, Node]] = []
        for node in pool.below():
            if (
                node is self._leaf
                or node.weighted_direction is None
                or (among is not None and node not in among)
            ):
                continue
            if not self._means.effort.spend():
                break
            share, whole = self._projection.satisfaction(node)
            is_over = share > whole or (share and self._starving.by_guarantee)
            if is_over or node in self._on_path:
                ranked.append((-share / whole, node.arrival, node))
        for _, _, node in sorted(ranked, key=lambda each: each[:2]):
            if isinstance(node, Leaf):
                yield node
            elif isinstance(node, RoleNode):
                yield from self._in_order(node, among)

    def _of(self, leaf: Leaf, agent_id: AgentId | None) -> list[Holding]:
        """What the leaf could give up, the first to go last."""
        if not may_preempt(leaf, self._means.is_on):
            return []
        by_agent = self._means.holdings.of(leaf)
        if agent_id is None:
            known = [each for holdings in by_agent.values() for each in holdings]
        else:
            known = by_agent.get(agent_id, [])
        holdings = [each for each in known if self._with_tasks or each.is_offer]
        holdings.sort(key=lambda each: (each.is_offer, each.since, each.key))
        return holdings
