"""Preemptions in progress: starving frameworks, victims, and the earmarks for them.

A victim's task or offer stays charged until it ends. Meanwhile the victim's share is projected
without it, and the starving framework's share with its earmarks, so that nothing is taken twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from croupier.master.allocator.node import DEFAULT, Leaf
from croupier.master.allocator.pooled_agent import Earmark
from croupier.master.allocator.preemption import Holding, PreemptionPlan, Search, plan
from croupier.master.allocator.starvation import (
    PreemptionRules,
    ShareProjection,
    Starvation,
    Starving,
    may_preempt,
)
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import ancestors

VictimKey = tuple[FrameworkId, str]
Holdings = Callable[[Leaf], Iterable[Holding]]
# The most comparisons of shares in one look: about 10 ms.
EFFORT = 2_000
# Time for which a framework is skipped after no plan was found for it.
TRY_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class _Ending:
    """A task that was asked to end, and the framework that its resources are earmarked for."""

    victim: Holding
    owner: Leaf


@dataclass(frozen=True, slots=True)
class Protection:
    """The task that keeps a starving framework waiting, as it has not run for its minimum time.

    Attributes:
        leaf: the framework of the task, in its role.
        left_s: seconds until it may be preempted.
        starving_s: seconds for which the other framework has starved.
    """

    leaf: Leaf
    task_id: str
    left_s: float
    starving_s: float


class Preemptor:
    """Finds starving frameworks, plans preemptions, and records those in progress."""

    def __init__(self, state: AllocatorState, rules: PreemptionRules) -> None:
        self.rules = rules
        self._tree, self._agents = state.tree, state.agents
        self._starvation = Starvation(state, rules)
        self._ending: dict[VictimKey, _Ending] = {}
        self._tried: dict[Leaf, float] = {}
        # What plans of the present look take of offers and holds; it is taken back after it.
        self._taken_back: dict[str, Resources] = {}

    @property
    def is_possible(self) -> bool:
        """Whether any framework may preempt."""
        return self.rules.is_on or any(each.preemption for each in self._tree.settings.values())

    @property
    def has_unmet_demand(self) -> bool:
        """Whether a framework with declared demand waits for more, and so may starve later."""
        return self.is_possible and any(leaf.pending for leaf in self._tree.in_order())

    def may_preempt(self, role: Role) -> bool:
        """Return whether operators allow a role to preempt and be preempted."""
        set_by = (self._tree.settings.get(each, DEFAULT) for each in (role, *ancestors(role)))
        found = (each.preemption for each in set_by if each.preemption is not None)
        return next(found, self.rules.is_on)

    def least_run_s(self, role: Role) -> float:
        """Return for how long tasks of a role run before they may be preempted."""
        set_by = (self._tree.settings.get(each, DEFAULT) for each in (role, *ancestors(role)))
        found = (each.min_run_ms for each in set_by if each.min_run_ms is not None)
        return max(self.rules.min_age_s, next(found, 0) / 1000)

    def look(self, holdings: Holdings, now: float) -> list[PreemptionPlan]:
        """Begin the preemptions that are due; at most `rules.at_once`.

        The resources are earmarked at once; the caller notifies the victims and kills them. A
        framework without a plan is skipped for `TRY_AGAIN_S`. O(willing frameworks + holdings
        looked at), and at most `EFFORT` comparisons in the search.
        """
        self._tree.refresh()
        self._taken_back.clear()
        projection = self._projection()
        search = self._search(projection, holdings, now, EFFORT)
        plans: list[PreemptionPlan] = []
        self._tried = {leaf: until for leaf, until in self._tried.items() if until > now}
        for starving in self._starvation.look(projection, now):
            if starving.leaf in self._tried:
                continue
            while len(plans) < self.rules.at_once and self._lacks_room(projection, starving):
                found = plan(search, starving)
                if found is None:
                    self._tried[starving.leaf] = now + TRY_AGAIN_S
                    break
                self._begin(projection, found, now)
                for victim in found.victims:
                    search.forget(victim.leaf)
                plans.append(found)
        return plans

    def describe(self, framework_id: FrameworkId, role: Role, now: float) -> str | None:
        """Return in words whether and when the master preempts for a framework; None if never."""
        leaf = self._tree.leaves.get((framework_id, role))
        if leaf is None or not leaf.is_willing:
            return None
        if not self.is_possible:
            if leaf.is_needy:
                return "off (--preemption): its guarantee is met as tasks of others end"
            return None
        if not may_preempt(leaf, self.rules.is_on):
            return f"off for role {leaf.role}: no room is made for it"
        if self._agents.earmarks_of(leaf):
            return None
        self._tree.refresh()
        return self._starvation.describe(self._projection(), leaf, now)

    def protection(
        self, framework_id: FrameworkId, role: Role, holdings: Holdings, now: float
    ) -> Protection | None:
        """Return until when a framework that is due to be helped waits for younger tasks to age.

        None if it is not due, or if no victim would be found even then. A search with less effort
        looks for the first time at which there is a plan, so the time may be later than that.
        """
        leaf = self._tree.leaves.get((framework_id, role))
        if leaf is None or not leaf.is_willing or not self.is_possible:
            return None
        self._tree.refresh()
        projection = self._projection()
        starving = self._starvation.overdue(projection, leaf, now)
        if starving is None or not self._lacks_room(projection, starving):
            return None
        others = (each for each in self._tree.leaves.values() if each is not leaf)
        known = {each: list(holdings(each)) for each in others}

        def plan_at(at: float, effort: int = EFFORT) -> PreemptionPlan | None:
            return plan(self._search(projection, known.__getitem__, at, effort), starving)

        each_until = (each.protected_until for held in known.values() for each in held)
        times = sorted({until for until in each_until if until > now})
        if not times or plan_at(times[-1]) is None:
            return None
        before_last = bisect_left(
            times[:-1], True, key=lambda at: plan_at(at, EFFORT // 8) is not None
        )
        found = plan_at(times[before_last])
        victims = () if found is None else found.victims
        last = max(victims, key=lambda each: each.protected_until, default=None)
        if last is None or last.protected_until <= now:
            return None
        return Protection(last.leaf, last.key, last.protected_until - now, now - starving.since)

    def declined(self, framework_id: FrameworkId, role: Role, now: float) -> None:
        """Drop the framework's earmarks after a decline, and begin its cool-down.

        Earmarks stay while it has submitted tasks, which may need them.
        """
        leaf = self._tree.leaves.get((framework_id, role))
        if leaf is not None:
            self._starvation.excuse(leaf, now)
            if not leaf.queued:
                self._agents.forget_earmarks(leaf)

    def is_ending(self, key: VictimKey) -> bool:
        """Return whether the task was asked to end and still runs."""
        return key in self._ending

    def is_needed(self, key: VictimKey) -> bool:
        """Return whether the framework still wants the resources of the task."""
        ending = self._ending[key]
        owner = ending.owner
        agent = self._agents.agents.get(ending.victim.agent_id)
        known = self._tree.leaves.get((owner.framework_id, owner.role)) is owner
        kept = agent is not None and agent.earmark is not None and agent.earmark.leaf is owner
        return known and kept and owner.is_willing

    def ended(self, key: VictimKey) -> None:
        """Forget a task that ended, or need not end any more."""
        self._ending.pop(key, None)

    def _search(
        self, projection: ShareProjection, holdings: Holdings, at: float, effort: int
    ) -> Search:
        """Return a search for victims among what is not protected any more at a time."""
        return Search(
            self._tree,
            projection,
            lambda leaf: self._candidates(leaf, holdings, at),
            self._room,
            self._agents.agents,
            self.rules.is_on,
            effort,
        )

    def _begin(self, projection: ShareProjection, found: PreemptionPlan, now: float) -> None:
        leaf, room = found.starving.leaf, found.room
        for victim in found.victims:
            projection.change(victim.leaf, victim.resources.scalars, -1)
            if victim.is_offer:
                taken = self._taken_back.get(victim.key, NOTHING)
                self._taken_back[victim.key] = taken + victim.resources
            else:
                self._ending[victim.leaf.framework_id, victim.key] = _Ending(victim, leaf)
        projection.change(leaf, room.scalars)
        agent = self._agents.agents[found.agent_id]
        if agent.earmark is not None:
            room = room + agent.earmark.amount
        until = now + self.rules.grace_s + self.rules.earmark_s
        self._agents.earmark(agent, Earmark(leaf, room, until))

    def _lacks_room(self, projection: ShareProjection, starving: Starving) -> bool:
        """Return whether it needs more than its earmarks."""
        leaf, left = starving.leaf, sum(pending.left for pending in starving.wanted)
        if len(self._agents.earmarks_of(leaf)) >= left:
            return False
        return self._starvation.is_below(projection, leaf)

    def _projection(self) -> ShareProjection:
        projection = ShareProjection(self._tree)
        for ending in self._ending.values():
            projection.change(ending.victim.leaf, ending.victim.resources.scalars, -1)
        for _, mark in self._agents.earmarks():
            projection.change(mark.leaf, mark.amount.scalars)
        return projection

    def _candidates(self, leaf: Leaf, holdings: Holdings, at: float) -> Iterable[Holding]:
        for each in holdings(leaf):
            if each.is_offer:
                # A hold may be taken in parts.
                taken = self._taken_back.get(each.key, NOTHING)
                left = replace(each, resources=each.resources - taken) if taken else each
                if left.resources:
                    yield left
            elif (leaf.framework_id, each.key) in self._ending:
                continue
            elif each.protected_until <= at:
                yield each

    def _room(self, leaf: Leaf, agent_id: AgentId) -> Resources | None:
        """Return the resources that are or will be free and are not earmarked; see `Search`."""
        agent = self._agents.agents[agent_id]
        mark = agent.earmark
        if mark is not None and mark.leaf is not leaf:
            return None
        if any(not each.serves(leaf.framework_id, leaf.role) for each in agent.reservations):
            return None
        free = agent.free
        for ending in self._ending.values():
            if ending.victim.agent_id == agent_id:
                free = free + ending.victim.resources
        return free if mark is None else free.beside(mark.amount)
