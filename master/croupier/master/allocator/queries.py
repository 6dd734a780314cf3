"""What the allocator knows, for those who ask: it changes nothing.

Who holds what, who is entitled to what, and why somebody has no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from croupier.master.allocator import explain, limits
from croupier.master.allocator.absent_agents import AbsentAgents
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.node import Amounts, Leaf, RoleNode, add_amounts
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.reasons import PassedOver
from croupier.master.allocator.rules import Rules
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings


class Account:
    """The books: agents, the tree of roles, and each framework's place in it.

    Attributes:
        tree: who holds what, for those who only look.
        pool: what agents have free, the same.
        absent: agents that have not returned to this master, the same.
    """

    def __init__(
        self, policy: Policy | None, rules: Rules, roles: Mapping[Role, RoleSettings] | None
    ) -> None:
        """Open empty books."""
        self._rules = rules
        self._totals = Totals()
        self.absent = AbsentAgents(self._totals)
        self.tree = Tree(self._totals, policy, roles)
        self.pool = AgentPool(rules.order, rules.seed, rules.scarce)
        self._frameworks: dict[FrameworkId, dict[Role, Leaf]] = {}
        self._demands: dict[FrameworkId, tuple[Demand, ...]] = {}

    def free(self, agent_id: AgentId) -> Resources:
        """What is free on the agent."""
        return self.pool.agents[agent_id].free

    def roles(self) -> Mapping[Role, RoleSettings]:
        """What operators have set."""
        return self.tree.settings

    def demands(self, framework_id: FrameworkId) -> tuple[Demand, ...]:
        """What the framework wants now, counted down by what it launched."""
        leaves = self._frameworks[framework_id]
        told = []
        seen: dict[Role, int] = {}
        for demand in self._demands[framework_id]:
            leaf = leaves[demand.role or next(iter(leaves))]
            place = seen.get(leaf.role, 0)
            seen[leaf.role] = place + 1
            assert leaf.pending is not None
            told.append(leaf.pending[place].demand)
        return tuple(told)

    def excess(self, framework_id: FrameworkId, role: Role, amount: Resources) -> str:
        """In words, which limit a launch of `amount` would break; empty if none.

        What was offered is within all limits, unless they were lowered since, or the framework
        has declared since that it wants less.
        """
        leaf = self._frameworks[framework_id][role]
        return limits.excess(leaf, amount.scalars) if leaf.limited else ""

    @property
    def resource_names(self) -> set[str]:
        """The scalar resources that any agent has, absent ones included."""
        return set(self._totals.amounts)

    @property
    def total(self) -> Mapping[str, int]:
        """Thousandths of each scalar that all agents have together, absent ones included."""
        return self._totals.amounts

    def share(self, framework_id: FrameworkId) -> Fraction:
        """The framework's dominant share of the cluster, all its roles together."""
        held: Amounts = {}
        for leaf in self._frameworks[framework_id].values():
            add_amounts(held, leaf.held, 1)
        return self._totals.share(held)

    def role_share(self, role: Role) -> Fraction:
        """The role's dominant share of the cluster, before its weight."""
        pool = self.tree.roles.get(role)
        return self._totals.share(pool.held) if pool is not None else Fraction(0)

    def role_entitlement(self, role: Role) -> Fraction:
        """What part of the cluster the role is entitled to now; 0 if nobody in it wants any."""
        self.tree.refresh()
        pool = self.tree.roles.get(role)
        return self.tree.entitlement(pool) if pool is not None else Fraction(0)

    def entitlement(self, framework_id: FrameworkId) -> Fraction:
        """What part of the cluster the framework is entitled to, all its roles together."""
        self.tree.refresh()
        leaves = self._frameworks[framework_id].values()
        return sum((self.tree.entitlement(leaf) for leaf in leaves), Fraction(0))

    def pools(self) -> Iterator[RoleNode]:
        """The nodes of all roles that have frameworks, in the order in which they came."""
        yield from self.tree.roles.values()

    def is_suppressed(self, framework_id: FrameworkId) -> bool:
        """Whether the framework asked for no offers in any role."""
        leaves = self._frameworks[framework_id].values()
        return all(leaf.is_suppressed for leaf in leaves if leaf.is_member)

    def filter_count(self) -> int:
        """How many agents are refused by some framework, counted once for each."""
        return sum(leaf.filters for leaf in self.tree.leaves.values())

    def explain(
        self, framework_id: FrameworkId, agent_id: AgentId | None = None, now: float = 0.0
    ) -> list[PassedOver]:
        """Why the framework is not dealt more, the latest cause of each role first.

        With `agent_id`, what keeps it from that agent at this moment.
        """
        self.tree.refresh()
        told: list[PassedOver] = []
        for leaf in self._leaves(framework_id, ()):
            agent = None if agent_id is None else self.pool.agents[agent_id]
            if agent is None:
                told += explain.of_leaf(leaf, self.tree, self.pool)
            else:
                told.append(explain.of_agent(leaf, agent, self.tree, self._rules, now))
        return told

    def _leaves(self, framework_id: FrameworkId, roles: Sequence[Role]) -> list[Leaf]:
        leaves = self._frameworks[framework_id]
        members = [leaf for leaf in leaves.values() if leaf.is_member]
        return [leaf for leaf in members if not roles or leaf.role in roles]
