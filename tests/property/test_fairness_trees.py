"""Trees of roles: the engine's choices against a definition, and entitlements.

The definition shares no code with the engine, and recomputes every share for every choice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random

import pytest

from croupier.lab.churn import ChurnPlan, random_plan
from croupier.lab.engine_rule import EngineRule
from croupier.lab.policies import Collapsed, MinSatWeights, NaiveHdrf, Unrotated
from croupier.lab.solvers.filling import Rule, demand_of
from croupier.lab.solvers.pools import Forest, Pool
from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.policies import Policy
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, want
from tests.harness.allocator_invariants import check_allocator, check_tree
from tests.harness.effort import portion
from tests.harness.fairness import NAMES
from tests.harness.guards import Checked, assert_guarded
from tests.reference import rules as reference
from tests.reference.rules import MinSatisfactionByUse

PAIRS: list[tuple[Callable[[], Policy], Callable[[], Rule]]] = [
    (Unrotated, reference.MinSatisfactionByUse),
    (MinSatWeights, reference.MinSatisfaction),
    (NaiveHdrf, reference.Naive),
    (Collapsed, reference.Collapsed),
]


class RandomTree:
    """A random tree whose clients start, end, pause and change weights at random."""

    def __init__(self, number: int) -> None:
        self.chance = chance = random.Random(f"tree {number}")
        policy, rule = PAIRS[number % len(PAIRS)]
        self.plan = random_plan(chance, "random")
        self.forest = self.plan.grow().forest
        if policy in (Unrotated, MinSatWeights):
            self._guarantee_some()
        self.is_by_resource = policy in (Unrotated, NaiveHdrf) and chance.random() < 0.4
        if self.is_by_resource:
            self._weigh_by_resource()
        self.rule = rule()
        self.engine = EngineRule(self.forest, policy())
        self.clients = list(self.forest.root.clients())

    def _guarantee_some(self) -> None:
        for node in self.forest.root.nodes():
            if node is not self.forest.root and self.chance.random() < 0.15:
                node.guarantee = tuple(
                    Fraction(self.chance.choice((0, 10, 40))) for _ in self.forest.totals
                )

    def _weigh_by_resource(self) -> None:
        for node in self.forest.root.nodes():
            if node is not self.forest.root and self.chance.random() < 0.4:
                node.factors = tuple(
                    Fraction(self.chance.choice((1, 2, 3)), self.chance.choice((1, 2)))
                    for _ in self.forest.totals
                )

    def change(self) -> None:
        """Apply a random change that is not a choice of the policy."""
        client = self.chance.choice(self.clients)
        what = self.chance.random()
        if what < 0.5 and client.tasks:
            self.forest.start(client, -self.chance.randint(1, client.tasks))
        elif what < 0.7:
            client.is_paused = not client.is_paused
        elif (
            what < 0.8
            and not self.is_by_resource
            and not isinstance(self.rule, reference.Collapsed)
        ):
            self._weigh(self.chance.choice(list(self.forest.by_path.values())[1:]))
        elif what < 0.85:
            self._grow()

    def choices(self) -> Iterator[Checked]:
        """Yield checks that engine and definition choose the same of some clients."""
        some = {client for client in self.clients if self.chance.random() < 0.8}
        for _ in range(4):
            mine = self.engine.pick(self.forest, lambda client: client in some and client.wants)
            theirs = self.rule.pick(self.forest, lambda client: client in some and client.wants)
            about = (self.plan, mine and mine.path, theirs and theirs.path)
            yield Checked(theirs is not None, mine is theirs, about)
            if theirs is not None and theirs.tasks < 40:
                self.forest.start(theirs)
        self.engine.catch_up()
        check_tree(self.engine.tree)

    def _weigh(self, node: Pool) -> None:
        node.weight = Fraction(self.chance.choice((1, 2, 3, 5, 7)))
        role = Role(node.path)
        now = self.engine.tree.settings.get(role, RoleSettings())
        # The engine's tree takes weights in any unit; here the unit is 1.
        self.engine.tree.set_role(role, RoleSettings(int(node.weight), guarantee=now.guarantee))

    def _grow(self) -> None:
        resource = self.chance.randrange(len(self.forest.totals))
        more = self.chance.randint(1, 50)
        totals = list(self.forest.totals)
        totals[resource] += more
        self.forest.totals = tuple(totals)
        self.engine.tree.totals.add({f"r{resource}": more})


def test_the_engine_chooses_as_the_definition_does() -> None:
    def checks() -> Iterator[Checked]:
        for number in range(portion(100)):
            tree = RandomTree(number)
            for _ in range(30):
                tree.change()
                yield from tree.choices()

    assert_guarded("choice in a tree", checks(), portion(9_000))


class FilledTree:
    """A random tree of frameworks on one agent, under the allocator, with churn."""

    def __init__(self, plan: ChurnPlan, chance: random.Random) -> None:
        self.plan, self.chance = plan, chance
        settings = {Role(path): RoleSettings(1000 * w) for path, w in plan.weights.items()}
        self.allocator = Allocator(
            None, Rules(hold_s=0, scarce=frozenset(), remembers_misfits=True), settings
        )
        self.running: list[str] = []
        for path, task in plan.demands.items():
            framework_id = FrameworkId(path.replace("/", "-"))
            self.allocator.add_framework(framework_id, (Role(path),))
            self.allocator.set_demand(framework_id, (Demand(self._resources(task)),))
            self.allocator.connect(framework_id, True)
        self.allocator.add_agent(AgentId("a"), self._resources(plan.capacity))

    def fill(self) -> None:
        """Allocate until no task fits; every unit becomes a task at once."""
        while self.allocator.has_dirty_agents:
            for grant in self.allocator.run(0.0, budget=1):
                task = self._resources(self.plan.demands[grant.role])
                for _ in grant.deals:
                    self.allocator.charges.launch(
                        grant.framework_id, grant.role, grant.agent_id, task
                    )
                    self.running.append(grant.role)
                tasks = [task] * len(grant.deals)
                self.allocator.settle_offers(*grant.place, grant.units, tasks)

    def end(self, path: str) -> None:
        """End a task of the client, and allocate its resources."""
        self.running.remove(path)
        framework_id = FrameworkId(path.replace("/", "-"))
        task = self._resources(self.plan.demands[path])
        self.allocator.charges.release(framework_id, Role(path), AgentId("a"), task)
        self.fill()

    def forest(self) -> Forest:
        """Return the running tasks as a forest."""
        forest = self.plan.grow().forest
        for path in self.running:
            forest.start(forest.by_path[path])
        return forest

    @staticmethod
    def _resources(amounts: tuple[int, ...]) -> Resources:
        return Resources(dict(zip(NAMES, amounts, strict=False)))


def entitled(forest: Forest) -> dict[Pool, Fraction]:
    """Return exact entitlements by the demands of clients."""
    return MinSatisfactionByUse(resolution=None, trusts_declared=True).entitlements(forest)


def test_every_node_of_a_filled_tree_has_its_entitlement_less_a_few_tasks() -> None:
    """u >= E (1 - the blocked client's task - the largest task below each node)."""

    def checks() -> Iterator[Checked]:
        for number in range(portion(110)):
            chance = random.Random(f"filled {number}")
            filled = FilledTree(random_plan(chance, "random"), chance)
            filled.fill()
            check_allocator(filled.allocator)
            forest = filled.forest()
            deltas = {c: forest.dominant(c, demand_of(c)) for c in forest.root.clients()}
            below = [v for v in forest.root.nodes() if v is not forest.root]
            slack = sum(max(deltas[c] for c in node.clients()) for node in below)
            slack += max(deltas.values())
            for node, promised in entitled(forest).items():
                holds = forest.dominant(node) >= promised * (1 - slack)
                yield Checked(slack < 1, holds, (filled.plan, node.path))

    assert_guarded("hierarchical sharing incentive", checks(), portion(800))


def test_no_node_falls_below_its_entitlement_under_churn() -> None:
    """Clients are drained and tasks end at random; the slack is two tasks of each client."""

    def checks() -> Iterator[Checked]:
        for number in range(portion(25)):
            chance = random.Random(f"churned {number}")
            filled = FilledTree(random_plan(chance, "random"), chance)
            filled.fill()
            for _ in range(3):
                drained = chance.choice(list(filled.plan.demands))
                for _ in range(filled.running.count(drained)):
                    filled.end(drained)
                for _ in range(60):
                    filled.end(chance.choice(filled.running))
                check_allocator(filled.allocator)
            forest = filled.forest()
            clients = forest.root.clients()
            slack = 2 * sum((forest.dominant(c, demand_of(c)) for c in clients), Fraction(0))
            for node, promised in entitled(forest).items():
                applies = node is not forest.root and promised > slack
                holds = forest.dominant(node) + slack >= promised
                yield Checked(applies, holds, (filled.plan, node.path))

    assert_guarded("entitlement under churn", checks(), portion(80))


# Under limits, each role is entitled to what it gets of a cluster that is filled.


ROLES = ("a", "a/x", "a/y", "b", "b/x", "c")
LEAVES = ("a/x", "a/y", "b/x", "c")
CPUS = 400
WORLDS = 40


def role_entitled(fixture: AllocatorFixture, role: str) -> Fraction:
    return fixture.allocator.queries.role_entitlement(Role(role))


@pytest.mark.parametrize("seed", range(portion(WORLDS)))
def test_what_limits_leave_goes_to_siblings(seed: int) -> None:
    random = Random(seed)
    fixture = AllocatorFixture()
    for role in ROLES:
        limit = {}
        if random.random() < 0.4:
            limit = {"cpus": random.randint(0, CPUS // 2) * 1000, "mem": CPUS * 100_000}
        fixture.set_role(role, RoleSettings(random.choice((1000, 2000, 5000)), limit=limit))
    for number, role in enumerate(LEAVES):
        fixture.framework(f"f{number}", want("cpus:1"), roles=(role,))
    before = {role: role_entitled(fixture, role) for role in ROLES}
    assert all(0 <= each <= 1 for each in before.values())
    fixture.agent("m", f"cpus:{CPUS};mem:{CPUS * 10}MB")
    fixture.fill()
    for role in ROLES:
        share, due = fixture.allocator.queries.role_share(Role(role)), role_entitled(fixture, role)
        assert abs(share - due) <= Fraction(4, CPUS), (role, float(share), float(due))


def test_a_role_is_entitled_to_its_limit_at_most() -> None:
    fixture = AllocatorFixture(roles={"a": RoleSettings(limit={"cpus": 21_000})})
    fixture.agent("m", "cpus:100;mem:100GB")
    for role in ("a", "a", "b", "c"):
        name = f"f{len(fixture.tree.leaves)}"
        fixture.framework(name, want("cpus:1"), roles=(role,))
    assert role_entitled(fixture, "a") == Fraction(21, 100)
    assert role_entitled(fixture, "b") == role_entitled(fixture, "c") == Fraction(79, 200)
    assert fixture.allocator.queries.entitlement(FrameworkId("f0")) == Fraction(21, 200)
    fixture.set_role("a", RoleSettings(limit={"cpus": 50_000}))
    assert role_entitled(fixture, "a") == Fraction(1, 3)
    what_if = fixture.allocator.queries.what_if({Role("b"): RoleSettings(limit={"cpus": 10_000})})
    assert what_if.entitlement(Role("b")) == Fraction(1, 10)
    assert what_if.entitlement(Role("a")) == Fraction(9, 20)
    assert set(what_if.moved()) == {"a", "b", "c"}
    assert fixture.agents.agents[AgentId("m")].free == fixture.agents.agents[AgentId("m")].total
