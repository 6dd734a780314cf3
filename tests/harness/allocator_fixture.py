"""A fixture for the allocator: agents, frameworks and offers in short calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from croupier.master.allocator import Allocator, Cause, Grant, Rules
from croupier.master.allocator.policies import Policy
from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings, parse_amounts
from tests.harness.allocator_invariants import check_allocator
from tests.harness.reasons import reasons_of

# No reservations, and no resource is scarce.
PLAIN = Rules(hold_s=0, scarce=frozenset())


def amount(text: str) -> Resources:
    """Parse resources."""
    return Resources.parse(text)


def role_of(
    weight: float = 1, *, guarantee: str = "", limit: str = "", **by_resource: float
) -> RoleSettings:
    """Return settings of a role; `by_resource` are weights of resources."""
    return RoleSettings(
        round(weight * 1000),
        {name: round(each * 1000) for name, each in by_resource.items()},
        parse_amounts(guarantee),
        parse_amounts(limit),
    )


def want(
    unit: str,
    count: int | None = None,
    *constraints: Constraint,
    least: int = 1,
    most: int | None = None,
    role: str | None = None,
) -> Demand:
    """Return a demand for `count` of `unit`."""
    return Demand(
        amount(unit), count, constraints, least, most, None if role is None else Role(role)
    )


class AllocatorFixture:
    """An allocator with its agents and frameworks.

    Attributes:
        allocator: the allocator under test.
        tree, agents: its parts.
        now: seconds; `wait` advances it.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        rules: Rules = PLAIN,
        roles: Mapping[str, RoleSettings] | None = None,
        *,
        remembers: bool = True,
    ) -> None:
        """Begin empty; visits skip misfits if the allocator `remembers` them."""
        rules = replace(rules, remembers_misfits=remembers)
        settings = {Role(role): each for role, each in (roles or {}).items()}
        self.allocator = Allocator(policy, rules, settings)
        self.tree, self.agents = self.allocator._tree, self.allocator._agents
        self.now = 0.0

    def agent(self, name: str, total: str, hostname: str = "", **attributes: str) -> None:
        self.allocator.add_agent(AgentId(name), amount(total), hostname, dict(attributes))

    def framework(
        self, name: str, *demands: Demand, roles: Sequence[str] = (), owner: str = ""
    ) -> None:
        """Add and connect a framework in `roles`, or in a role of its own name."""
        framework_id = FrameworkId(name)
        self.allocator.add_framework(framework_id, tuple(map(Role, roles or (name,))), owner)
        self.allocator.set_demand(framework_id, demands)
        self.allocator.connect(framework_id, True)

    def demand(self, name: str, *demands: Demand) -> None:
        self.allocator.set_demand(FrameworkId(name), demands)

    def counts(self, name: str) -> list[int | None]:
        """Return the remaining count of each demand."""
        return [each.count for each in self.allocator.queries.demands(FrameworkId(name))]

    def set_role(self, role: str, settings: RoleSettings) -> None:
        self.allocator.set_role(Role(role), settings)

    def deal(self, budget: int = 10**9) -> list[Grant]:
        """Call `run` once, and check every invariant."""
        grants = self.allocator.run(self.now, budget)
        check_allocator(self.allocator)
        return grants

    def dealt(self) -> list[str]:
        """Return the grants of a pass as `framework agent resources`."""
        return [f"{each.framework_id} {each.agent_id} {each.resources}" for each in self.deal()]

    def takers(self) -> list[str]:
        """Return the frameworks that get grants in a pass, in order."""
        return [str(each.framework_id) for each in self.deal()]

    def accept(self, grant: Grant, *tasks: str) -> None:
        """Launch `tasks`, or tasks on the whole grant; free the rest without a filter."""
        wanted = [amount(task) for task in tasks]
        if not tasks:
            wanted = [unit for unit, number in grant.units for _ in range(number)]
            wanted = wanted or [grant.resources]
        place, left, launched = grant.place, grant.resources, []
        for task in wanted:
            launched.append(task if task.ranges or task.sets else task.carve(left, 1))
            left = left - launched[-1]
            self.allocator.charges.launch(*place, launched[-1])
        self.allocator.settle_offers(*place, grant.units, launched, left)
        check_allocator(self.allocator)

    def decline(self, grant: Grant, refuse_s: float | None = None) -> None:
        """Decline a grant; `refuse_s` sets a filter of that duration."""
        until = None if refuse_s is None else self.now + refuse_s
        self.allocator.settle_offers(
            *grant.place, grant.units, unused=grant.resources, refused_until=until
        )
        check_allocator(self.allocator)

    def refuse(
        self,
        framework_id: FrameworkId,
        role: Role,
        agent_id: AgentId,
        refused: Resources,
        until: float,
    ) -> None:
        """Set a filter, as a decline of `refused` does."""
        leaf = self.tree.leaves[framework_id, role]
        self.agents.agents[agent_id].filters.add(leaf, refused, until)
        self.agents.wake_at(agent_id, until)

    def finish(self, grant: Grant, task: str) -> None:
        """End a task of an accepted grant."""
        self.allocator.charges.release(grant.framework_id, grant.role, grant.agent_id, amount(task))
        check_allocator(self.allocator)

    def fill(self) -> list[Grant]:
        """Allocate, and accept every grant as a whole, until there are no more grants."""
        taken: list[Grant] = []
        while grants := self.deal():
            for grant in grants:
                self.accept(grant)
            taken += grants
        return taken

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.allocator.wake(self.now)

    def causes(self, name: str, agent: str | None = None) -> list[Cause]:
        """Return the causes why the framework gets no more offers, or none of one agent."""
        agent_id = None if agent is None else AgentId(agent)
        reasons = reasons_of(self.allocator.queries, FrameworkId(name), agent_id, self.now)
        return [each.cause for each in reasons]

    def why(self, name: str, agent: str | None = None) -> str:
        """Return the text of the first cause."""
        agent_id = None if agent is None else AgentId(agent)
        return reasons_of(self.allocator.queries, FrameworkId(name), agent_id, self.now)[0].detail

    def free(self, agent: str) -> str:
        return str(self.allocator.queries.free(AgentId(agent)))
