"""Preemptions under way: who starves, what was asked back for whom, what is kept until it comes.

What a victim gives up stays charged to it until it is gone; meanwhile the books here count
it as gone, and the room that is made as the starving framework's own, so that nothing is
taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from croupier.master.allocator.agent_pool import AgentPool, Earmark, PooledAgent
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.preemption import Effort, Holding, Means, Plan, plan
from croupier.master.allocator.preemption import Holdings as KnownHoldings
from croupier.master.allocator.share_projection import ShareProjection, may_preempt
from croupier.master.allocator.starvation import PreemptionRules, Starvation
from croupier.master.allocator.tree import Tree
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import NOTHING, Resources

VictimKey = tuple[FrameworkId, str]
Holdings = Callable[[Leaf], Iterable[Holding]]
# Comparisons in one look, some 10 ms of them, and how long whom they did not help is left out.
EFFORT = 2_000
TRY_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class _Going:
    """A task that was asked to end."""

    victim: Holding
    owner: Leaf


class Preemptor:
    """Looks for who starves, plans, and keeps the books of what is under way."""

    def __init__(self, tree: Tree, agents: AgentPool, rules: PreemptionRules) -> None:
        """Nothing is under way."""
        self.rules = rules
        self._tree, self._pool = tree, agents
        self._starvation = Starvation(self._tree, rules)
        self._going: dict[VictimKey, _Going] = {}
        self._tried: dict[Leaf, float] = {}
        # Offers that plans of the present look take back: they still stand until it is over.
        self._taken_back: set[str] = set()

    @property
    def is_possible(self) -> bool:
        """Whether anybody may preempt at all."""
        return self.rules.is_on or any(each.preemption for each in self._tree.settings.values())

    @property
    def is_to_look(self) -> bool:
        """Whether somebody who declared demand waits for more: then time matters."""
        return self.is_possible and any(leaf.pending for leaf in self._tree.in_order())

    def look(self, holdings: Holdings, now: float) -> list[Plan]:
        """Begin what preemptions are due; at most `rules.at_once`.

        Room is kept at once; what the victims are told and when they are killed is for the
        caller. For whom no way was found is left out for some seconds. O(willing frameworks +
        holdings looked at), and at most `EFFORT` comparisons in the search.
        """
        self._tree.refresh()
        self._taken_back.clear()
        projection = self._projection()
        known = KnownHoldings(lambda leaf: self._of(leaf, holdings, now))
        means = Means(
            self._tree,
            projection,
            known,
            self._room,
            self._pool.agents,
            self.rules.is_on,
            Effort(EFFORT),
        )
        plans: list[Plan] = []
        self._tried = {leaf: until for leaf, until in self._tried.items() if until > now}
        for starving in self._starvation.look(projection, now):
            if starving.leaf in self._tried:
                continue
            while len(plans) < self.rules.at_once and self._is_owed(projection, starving.leaf):
                found = plan(means, starving)
                if found is None:
                    self._tried[starving.leaf] = now + TRY_AGAIN_S
                    break
                self._begin(projection, found, now)
                for victim in found.victims:
                    known.forget(victim.leaf)
                plans.append(found)
        return plans

    def tell(self, framework_id: FrameworkId, role: Role, now: float) -> str | None:
        """Whether and when room is made for a framework that waits; None without preemption."""
        leaf = self._tree.leaves.get((framework_id, role))
        if leaf is None or not self.is_possible or not leaf.is_willing:
            return None
        if not may_preempt(leaf, self.rules.is_on):
            return f"off for role {leaf.role}: no room is made for it"
        if any(each.earmark is not None and each.earmark.leaf is leaf for each in self._kept()):
            return None
        self._tree.refresh()
        return self._starvation.tell(self._projection(), leaf, now)

    def _kept(self) -> Iterable[PooledAgent]:
        return self._pool.earmarked.values()

    def declined(self, framework_id: FrameworkId, role: Role, now: float) -> None:
        """The framework did not want what it was offered: it does not starve for a while."""
        leaf = self._tree.leaves.get((framework_id, role))
        if leaf is not None:
            self._starvation.excuse(leaf, now)
            self._pool.forget_earmarks(leaf)

    def is_going(self, key: VictimKey) -> bool:
        """Whether the task was asked to end and has not."""
        return key in self._going

    def is_needed(self, key: VictimKey) -> bool:
        """Whether whom the task was to make room for still wants it."""
        going = self._going[key]
        owner = going.owner
        agent = self._pool.agents.get(going.victim.agent_id)
        known = self._tree.leaves.get((owner.framework_id, owner.role)) is owner
        kept = agent is not None and agent.earmark is not None and agent.earmark.leaf is owner
        return known and kept and owner.is_willing

    def gone(self, key: VictimKey) -> None:
        """The task has ended, or need not end any more."""
        self._going.pop(key, None)

    def check(self) -> None:
        """Assert every invariant."""
        for going in self._going.values():
            assert going.victim.leaf is not going.owner

    def _begin(self, projection: ShareProjection, found: Plan, now: float) -> None:
        leaf, room = found.starving.leaf, found.room
        for victim in found.victims:
            projection.change(victim.leaf, victim.resources.scalars, -1)
            if victim.is_offer:
                self._taken_back.add(victim.key)
            else:
                self._going[victim.leaf.framework_id, victim.key] = _Going(victim, leaf)
        projection.change(leaf, room.scalars)
        agent = self._pool.agents[found.agent_id]
        if agent.earmark is not None:
            room = room + agent.earmark.amount
        until = now + self.rules.grace_s + self.rules.earmark_s
        self._pool.earmark(agent, Earmark(leaf, room, until))

    def _is_owed(self, projection: ShareProjection, leaf: Leaf) -> bool:
        """Whether it lacks something that is not on its way already."""
        on_its_way = sum(
            1
            for agent in self._pool.earmarked.values()
            if agent.earmark is not None and agent.earmark.leaf is leaf
        )
        left = sum(want.left for want in leaf.pending or ())
        return on_its_way < left and self._starvation.is_below(projection, leaf)

    def _projection(self) -> ShareProjection:
        projection = ShareProjection(self._tree)
        for going in self._going.values():
            projection.change(going.victim.leaf, going.victim.resources.scalars, -1)
        for agent in self._pool.earmarked.values():
            if agent.earmark is not None:
                projection.change(agent.earmark.leaf, agent.earmark.amount.scalars)
        return projection

    def _of(self, leaf: Leaf, holdings: Holdings, now: float) -> Iterable[Holding]:
        for each in holdings(leaf):
            if each.is_offer:
                if each.key not in self._taken_back:
                    yield each
            elif (leaf.framework_id, each.key) in self._going:
                continue
            elif now - each.since >= self.rules.min_age_s:
                yield each

    def _room(self, leaf: Leaf, agent_id: AgentId) -> Resources | None:
        """What is free there, or will be, and is for nobody else."""
        agent = self._pool.agents[agent_id]
        mark = agent.earmark
        if mark is not None and mark.leaf is not leaf:
            return None
        free = agent.free
        for going in self._going.values():
            if going.victim.agent_id == agent_id:
                free = free + going.victim.resources
        kept = mark.amount if mark is not None else NOTHING
        scalars = {name: max(milli - kept[name], 0) for name, milli in free.scalars.items()}
        return Resources(scalars, free.ranges, free.sets)
