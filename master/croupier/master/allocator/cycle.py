"""A pass: deal what is free on unsettled agents to the neediest who can use it.

On each agent, one unit at a time goes to the willing framework of least weighted dominant
share that can use the agent, until nobody can: Algorithm 1 of the DRF paper (Ghodsi et
al., NSDI 2011), machine by machine as in its Theorem 7. A unit is the declared shape; a
framework that declares none takes the whole remainder. Units of one framework on one agent
are dealt as one grant.

A framework whose unit does not fit now is skipped, so nothing lies idle for want of a
large gap. Skipping alone would starve large units: under churn small tasks refill every
gap first. So when the next in line could use the very resource that the skipped one lacks,
and is ahead of it by more than its unit, the agent is kept for the skipped one: at most one
agent for each framework, and for a bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.master.allocator.pool import Pool, PooledAgent, Useful
from croupier.master.allocator.reasons import Cause
from croupier.master.allocator.tree import FrameworkNode, Tree
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import NOTHING, Resources

_MANY = 10**9
# A visit ends after so much work, about 10 ms of it, and the agent comes up again: units may
# be as small as a thousandth of a large agent. A deal is 1, and more where there are many
# ranges to carve from or many frameworks that room may be kept for.
WORK_IN_A_VISIT = 500


@dataclass(frozen=True, slots=True)
class Grant:
    """The decision to offer `resources` of an agent to a framework; they are charged to it.

    Attributes:
        units: how many units of its demand these are; 0 if it declared none.
        deals: the numbers of the deals that it is made of, one for each unit, in the order
            of all deals ever made.
    """

    framework_id: FrameworkId
    agent_id: AgentId
    resources: Resources
    units: int
    deals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What bounds a pass.

    Attributes:
        useful: the least remainder that is offered.
        hold_s: how long an agent may be kept for a framework, and how long that framework
            must then wait before another is; 0 keeps none.
    """

    useful: Useful = field(default_factory=Useful)
    hold_s: float = 30.0


class Visit:
    """Dealing one agent, within a pass."""

    def __init__(
        self, agent: PooledAgent, tree: Tree, pool: Pool, rules: Rules, pass_number: int, now: float
    ) -> None:
        """Look at `agent` at time `now`."""
        self._agent, self._tree, self._pool = agent, tree, pool
        self._rules, self._pass, self._now = rules, pass_number, now
        # Once a framework cannot use the agent it cannot for the rest of the visit:
        # what is left only shrinks.
        self._out: set[FrameworkNode] = set()
        self._starved: list[tuple[FrameworkNode, Resources]] = []
        self._left = agent.free
        self._dealt: dict[FrameworkNode, tuple[Resources, list[int]]] = {}
        self.work = 0
        self._again = False
        self.looks = 0

    def run(self) -> list[Grant]:
        """Deal until nobody can use what is left, or there were very many deals.

        In the latter case the agent is unsettled again.
        """
        while self._left:
            if self.work >= WORK_IN_A_VISIT:
                self._again = True
                break
            node = self._neediest()
            if node is None:
                break
            if node.demand is None:
                self._deal(node, self._left)
            else:
                self._deal(node, node.demand.unit.carve(self._left, 1))
        grants = [self._grant(node, *dealt) for node, dealt in self._dealt.items()]
        if self._again:
            self._pool.unsettle(self._agent)
        return grants

    def _neediest(self) -> FrameworkNode | None:
        """The framework to deal the next unit to; None if nobody can use the agent."""
        for node in self._tree.neediest_first():
            if node in self._out:
                continue
            self.looks += 1
            refusal = self._refusal(node)
            if refusal is None:
                owner = self._kept_for(node)
                if owner is None:
                    return node
                refusal = (Cause.KEPT, f"kept for {owner.name}, which holds less")
            node.reasons.note(refusal[0], self._pass, self._agent.agent_id, refusal[1])
            self._out.add(node)
        return None

    def _refusal(self, node: FrameworkNode) -> tuple[Cause, object] | None:
        """Why `node` cannot use what is left of the agent; None if it can."""
        demand = node.demand
        if demand is None:
            if not self._rules.useful.holds(self._left):
                return Cause.NOT_USEFUL, self._left
            return self._filter_on(node, self._left)
        for constraint in demand.constraints:
            if not constraint.holds(self._agent.facts):
                return Cause.CONSTRAINT, constraint
        if node in self._dealt:
            wanted = node.wanted()
            if wanted is not None and wanted <= len(self._dealt[node][1]):
                return Cause.NO_DEMAND, "all units are offered"
        units = demand.unit.units_within(self._left, node.wanted() or _MANY)
        if not units:
            if demand.unit.units_within(self._agent.total, 1):
                self._starved.append((node, demand.unit))
            return Cause.DOES_NOT_FIT, _Shortage(demand.unit, self._left, self._agent.total)
        if node in self._dealt or not node.filters:
            return None
        return self._filter_on(node, demand.unit.carve(self._left, units))

    def _filter_on(self, node: FrameworkNode, candidate: Resources) -> tuple[Cause, object] | None:
        until = node.filters.until(self._agent.agent_id, candidate, self._now)
        if until is None:
            return None
        self._pool.wake_at(self._agent.agent_id, until)
        return Cause.FILTERED, _FilteredFor(until - self._now)

    def _kept_for(self, taker: FrameworkNode) -> FrameworkNode | None:
        """The needier framework that the agent is kept for, if it is kept from `taker`."""
        for node, unit in self._starved:
            if not self._may_hold(node):
                continue
            short = [name for name, milli in unit.scalars.items() if milli > self._left[name]]
            takes = self._left if taker.demand is None else taker.demand.unit
            if not any(takes[name] for name in short):
                continue
            if self._tree.is_ahead(taker, node, unit.scalars):
                self._hold(node)
                return node
        return None

    def _may_hold(self, node: FrameworkNode) -> bool:
        if node.holding is not None and self._now >= node.may_hold_at:
            node.holding = None
            node.may_hold_at = self._now + self._rules.hold_s
        if node.holding is None:
            return self._rules.hold_s > 0 and self._now >= node.may_hold_at
        return node.holding == self._agent.agent_id

    def _hold(self, node: FrameworkNode) -> None:
        if node.holding is None:
            node.holding = self._agent.agent_id
            node.may_hold_at = self._now + self._rules.hold_s
        self._pool.wake_at(self._agent.agent_id, node.may_hold_at)

    def _deal(self, node: FrameworkNode, resources: Resources) -> None:
        number = self._tree.deal(node, resources.scalars)
        pieces = sum(map(len, self._left.ranges.values()))
        self.work += 1 + (pieces + len(self._starved)) // 20
        dealt, numbers = self._dealt.get(node, (NOTHING, []))
        numbers.append(number)
        self._dealt[node] = (dealt + resources, numbers)
        self._left = self._left - resources

    def _grant(self, node: FrameworkNode, resources: Resources, numbers: list[int]) -> Grant:
        self._agent.free = self._left
        units = 0 if node.demand is None else len(numbers)
        node.outstanding += units
        node.holding = None
        node.reasons.clear()
        self._tree.relist(node)
        agent_id = self._agent.agent_id
        return Grant(node.framework_id, agent_id, resources, units, tuple(numbers))


@dataclass(frozen=True, slots=True)
class _Shortage:
    unit: Resources
    left: Resources
    total: Resources

    def __str__(self) -> str:
        if not self.unit.units_within(self.total, 1):
            return f"needs {self.unit}, but the agent has only {self.total} in all"
        return f"needs {self.unit}, but only {self.left or 'nothing'} is free"


@dataclass(frozen=True, slots=True)
class _FilteredFor:
    seconds: float

    def __str__(self) -> str:
        return f"the framework refused it for another {self.seconds:.1f} s"
