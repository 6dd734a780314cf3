"""The neediest leaf of the tree, against a reference in exact fractions.

Random trees have roles and frameworks at every height; in every second tree, frameworks have owners
and are claimed by others. Frameworks come and go, get offers, launch and end tasks, and change
their demand; operators change roles, and the cluster changes its size.
After every change, tree and reference must choose the same neediest framework from random sets of
eligible ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

import pytest

from croupier.lab.solvers.filling import Eligible, Key
from croupier.lab.solvers.pools import Forest, Pool
from croupier.master.allocator import policies
from croupier.master.allocator.node import Leaf, PrincipalNode
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.ids import FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import MAX_WEIGHT, RoleSettings
from tests.harness.allocator_invariants import check_tree
from tests.harness.effort import portion
from tests.reference.rules import MinSatisfactionByUse, Naive, weighed

NAMES = ("cpus", "mem", "gpus")
ROLES = ("a", "b", "c", "a/x", "a/y", "b/x", "a/x/1", "a/x/2", "b/x/1/deep", "c/only/child")
WEIGHTS = (1, 7, 500, 1000, 1000, 1000, 2000, 3000, 999_983, MAX_WEIGHT)


Amounts = dict[str, int]
Measure = Callable[[Forest, Pool], Fraction]
NOTHING = (Fraction(0),) * len(NAMES)
# Ranks after a deal are above those of arrivals.
DEALT = 1_000_000


@dataclass(slots=True, eq=False)
class Node(Pool):
    """A role, a principal in a role, or a framework; `used` are its offers and tasks.

    Attributes:
        offered, launched: what a framework holds, in thousandths.
        units: the shapes that a framework declared; None is none.
        slots: the number of its offers and tasks.
        is_principal: a client like a framework, whatever the number of its frameworks.
    """

    used: list[Fraction] = field(default_factory=lambda: [*NOTHING])
    offered: Amounts = field(default_factory=dict)
    launched: Amounts = field(default_factory=dict)
    units: list[Amounts] | None = None
    slots: int = 0
    is_principal: bool = False


def vector(amounts: Amounts, sign: int = 1) -> tuple[Fraction, ...]:
    return tuple(Fraction(sign * amounts.get(name, 0)) for name in NAMES)


class Selection(MinSatisfactionByUse):
    """Least satisfaction, with principals, and with frameworks that declare several shapes."""

    def _mu(self, forest: Forest, node: Pool, is_eligible: Eligible) -> Key | None:
        need = super()._mu(forest, node, is_eligible)
        is_principal = isinstance(node, Node) and node.is_principal
        return self.own(forest, node) if is_principal and need is not None else need

    def direction(self, forest: Forest, node: Pool) -> list[Fraction]:
        """Return the widest direction of what is launched or else of the declared shapes."""
        assert isinstance(node, Node)
        each = map(launches, node.clients())
        launched = [sum(column) for column in zip(NOTHING, *each, strict=True)]
        is_busy = any(launched)
        if not node.is_client and not (node.is_principal and is_busy):
            return super().direction(forest, node)
        units = [launched] if is_busy else list(map(vector, node.units or [{}]))
        widest = [*NOTHING]
        for unit in units:
            parts = forest.shares(unit)
            most = max(parts)
            # Without any share, the direction is that of all resources of the cluster.
            turned = [p / most for p in parts] if most else [Fraction(t > 0) for t in forest.totals]
            widest = [max(w, self._rounded(t)) for w, t in zip(widest, turned, strict=True)]
        return widest


def launches(client: Pool) -> tuple[Fraction, ...]:
    assert isinstance(client, Node)
    return vector(client.launched)


class ByMeasure(Naive):
    """Siblings compared by one number, once no guarantee below them is unmet."""

    def key(self, forest: Forest, node: Pool, is_eligible: Eligible) -> Key | None:
        """See `Naive.key`."""
        own = self.own(forest, node)
        if node.is_client:
            return weighed(own, node) if is_eligible(node) else None
        keys = [self.key(forest, child, is_eligible) for child in node.children]
        below = [key for key in keys if key is not None]
        if not below:
            return None
        assert isinstance(node, Node)
        is_judged_by_own = node.is_principal or min(below)[0] >= own[0]
        return weighed(own if is_judged_by_own else min(below), node)


class Twins:
    """The tree and its reference, changed together."""

    def __init__(
        self, random: Random, policy: str, measure: Measure | None, owners: tuple[str, ...]
    ) -> None:
        self.random = random
        self.owners = owners
        self.totals = Totals()
        self.tree = Tree(self.totals, policies.make(policy))
        self.forest = Forest(NOTHING)
        self.rule = Selection() if measure is None else ByMeasure(measure)
        self.pairs: dict[Leaf, Node] = {}
        self.roles: dict[str, Pool] = {"": self.forest.root}
        self.settings: dict[str, RoleSettings] = {}
        self.arrivals = 0
        self.deals = 0
        self.resize({name: random.randint(40, 90) for name in NAMES[: random.randint(1, 3)]})

    # Changes.

    def resize(self, change: Amounts, sign: int = 1) -> None:
        self.totals.add(change, sign)
        self.forest.totals = vector(dict(self.totals.amounts))

    def grow(self) -> None:
        if self.random.random() < 0.5:
            self.resize(dict(self.totals.amounts))
        else:
            self.resize({self.random.choice(NAMES): self.random.randint(1, 60)})

    def join(self) -> None:
        role, owner = self.random.choice(ROLES), self.draw_owner()
        leaf = self.tree.add(FrameworkId(f"f{self.arrivals}"), Role(role), owner)
        path = ""
        for name in role.split("/"):
            above, path = path, f"{path}/{name}" if path else name
            if path not in self.roles:
                self.roles[path] = self.arrive(Node(path), self.roles[above])
                self.configure(path)
        node = Node(str(leaf.framework_id), demand=NOTHING, is_paused=True)
        self.pairs[leaf] = self.arrive(node, self.pool_of(leaf))
        if self.random.random() < 0.8:
            self.turn(leaf, willing=True)

    def arrive(self, node: Node, above: Pool) -> Node:
        self.arrivals += 1
        self.forest.rank[node] = self.arrivals
        node.parent = above
        above.children.append(node)
        return node

    def draw_owner(self) -> str:
        """Return an owner's name, which no role has."""
        return self.random.choice(self.owners)

    def pool_of(self, leaf: Leaf) -> Pool:
        """Return the node right above the leaf, a new one for a new owner in the role."""
        pool = self.roles[leaf.role]
        if leaf.owner:
            path = f"{leaf.role}/{leaf.owner}"
            if path not in self.roles:
                self.roles[path] = self.arrive(Node(path, is_principal=True), pool)
            pool = self.roles[path]
        return pool

    def claim(self, leaf: Leaf) -> None:
        """Move the leaf to another owner."""
        node, path = self.pairs[leaf], path_of(leaf)
        owner = self.draw_owner()
        if owner == leaf.owner:
            return
        self.tree.move(leaf, owner)
        held = tuple(node.used)
        self.forest.hold(node, tuple(-amount for amount in held))
        self.roles[path].children.remove(node)
        if not self.roles[path].children and path != leaf.role:
            self.roles[leaf.role].children.remove(self.roles.pop(path))
        node.parent = self.pool_of(leaf)
        node.parent.children.append(node)
        self.forest.hold(node, held)

    def leave(self, leaf: Leaf) -> None:
        node = self.pairs.pop(leaf)
        for held in (node.offered, node.launched):
            if held:
                self.take_back(leaf, node, dict(held), held)
        path = path_of(leaf)
        self.tree.remove(leaf)
        self.roles[path].children.remove(node)
        while path and not self.roles[path].children:
            parent = path.rpartition("/")[0]
            self.roles[parent].children.remove(self.roles.pop(path))
            path = parent

    def take_back(self, leaf: Leaf, node: Node, amounts: Amounts, held: Amounts) -> None:
        self.add(held, amounts, -1)
        self.forest.hold(node, vector(amounts, -1))
        if held is node.offered:
            self.tree.withdraw(leaf, amounts)
        else:
            self.tree.charge(leaf, amounts, -1)
            node.slots -= 1

    def turn(self, leaf: Leaf, *, willing: bool) -> None:
        leaf.is_connected, self.pairs[leaf].is_paused = willing, not willing
        self.tree.relist(leaf)

    def amount(self) -> Amounts:
        drawn = {name: self.random.choice((0, 0, 1, 2, 3, 5)) for name in self.totals.amounts}
        return {name: milli for name, milli in drawn.items() if milli} or {"cpus": 1}

    def deal(self, leaf: Leaf) -> None:
        node, amounts = self.pairs[leaf], self.amount()
        self.deals += 1
        assert self.tree.deal(leaf, amounts) == self.deals
        self.add(node.offered, amounts)
        self.forest.hold(node, vector(amounts))
        node.slots += 1
        self.forest.rank.update(dict.fromkeys(node.path_up(), DEALT + self.deals))

    def launch(self, leaf: Leaf) -> None:
        node = self.pairs[leaf]
        part = {n: self.random.randint(1, m) for n, m in node.offered.items()}
        self.add(node.launched, part)
        self.add(node.offered, part, -1)
        self.tree.launch(leaf, part)

    def charge(self, leaf: Leaf) -> None:
        node, amounts = self.pairs[leaf], self.amount()
        self.add(node.launched, amounts)
        self.forest.hold(node, vector(amounts))
        node.slots += 1
        self.tree.charge(leaf, amounts)

    def give_back(self, leaf: Leaf) -> None:
        node = self.pairs[leaf]
        held = self.random.choice((node.offered, node.launched))
        if held:
            part = {n: self.random.randint(1, m) for n, m in held.items()}
            self.take_back(leaf, node, part, held)

    def declare(self, leaf: Leaf) -> None:
        """Set the demand: shapes, no shape in this role, or no declared demand."""
        node = self.pairs[leaf]
        units = [self.amount() for _ in range(self.random.randint(0, 2))]
        node.units = units if self.random.random() < 0.8 else None
        known = None if node.units is None else [PendingDemand(Demand(Resources(u))) for u in units]
        self.tree.set_pending(leaf, known)
        # A framework without demand in the role is not willing.
        node.is_paused = not leaf.is_willing
        self.tree.relist(leaf)

    def configure(self, role: str) -> None:
        settings, node = self.settings.get(role), self.roles.get(role)
        if settings is not None and node is not None:
            node.weight = Fraction(settings.weight, 1000)
            by_resource = settings.resource_weights
            node.factors = tuple(Fraction(by_resource.get(n, 1000), 1000) for n in NAMES)
            node.guarantee = vector(dict(settings.guarantee))

    def set_role(self) -> None:
        random, role = self.random, self.random.choice(ROLES)
        by_resource = {name: random.choice(WEIGHTS) for name in NAMES if random.random() < 0.3}
        guarantee = {name: random.randint(0, 30) for name in NAMES if random.random() < 0.2}
        self.settings[role] = RoleSettings(random.choice(WEIGHTS), by_resource, guarantee)
        self.tree.set_role(Role(role), self.settings[role])
        self.configure(role)

    @staticmethod
    def add(held: Amounts, amounts: Amounts, sign: int = 1) -> None:
        for name, milli in amounts.items():
            held[name] = held.get(name, 0) + sign * milli
            if not held[name]:
                del held[name]

    # Questions.

    def step(self) -> None:
        """Apply one random change."""
        leaves = list(self.pairs)
        if not leaves or self.random.random() < 0.1:
            return self.join()
        leaf = self.random.choice(leaves)
        actions: list[Callable[[], None]] = [
            *[lambda: self.deal(leaf)] * 5,
            *[lambda: self.launch(leaf)] * 3,
            *[lambda: self.give_back(leaf)] * 4,
            lambda: self.charge(leaf),
            lambda: self.declare(leaf),
            lambda: self.turn(leaf, willing=not leaf.is_listed and leaf.has_pending),
            lambda: self.leave(leaf),
            lambda: self.claim(leaf),
            self.set_role,
            self.grow,
        ]
        return self.random.choice(actions)()

    def ask(self) -> int:
        """Compare the choices; return how many had several candidates."""
        self.tree.refresh()
        check_tree(self.tree)
        guarded = 0
        willing = [leaf for leaf in self.pairs if leaf.is_listed]
        for part in (1.0, 0.5, 0.2):
            chosen = [leaf for leaf in willing if self.random.random() < part]
            guarded += len(chosen) > 1
            found = self.tree.neediest(set(chosen).__contains__)
            eligible = {self.pairs[leaf] for leaf in chosen}
            expected = self.rule.pick(self.forest, eligible.__contains__)
            assert (found and self.pairs[found]) is expected, (found, expected and expected.path)
        return guarded

    def compare_entitlements(self) -> None:
        computed = {}
        for node, due in self.tree.entitlements().items():
            role = f"{node.role_node.role}/" if isinstance(node, PrincipalNode) else ""
            computed[f"{role}{node.name}"] = due
            assert self.tree.entitlement(node) == due
        assert isinstance(self.rule, Selection)
        entitled = self.rule.entitlements(self.forest)
        assert computed == {node.path: part for node, part in entitled.items()}


def path_of(leaf: Leaf) -> str:
    """Return the path of the node right above the leaf."""
    return f"{leaf.role}/{leaf.owner}" if leaf.owner else str(leaf.role)


def guarded_decisions(cases: int, steps: int, policy: str, measure: Measure | None) -> int:
    guarded = 0
    for seed in range(cases):
        owners = ("", "p", "q", "p") if seed % 2 else ("",)
        twins = Twins(Random(f"{policy} {seed}"), policy, measure, owners)
        for _ in range(steps):
            twins.step()
            guarded += twins.ask()
        if measure is None:
            twins.compare_entitlements()
    print(f"{policy}: {guarded} guarded decisions")
    return guarded


def test_the_tree_and_the_definition_choose_the_same_neediest_leaf() -> None:
    assert guarded_decisions(portion(36), 120, "drf", None) > portion(5_000)


def asset(forest: Forest, node: Pool) -> Fraction:
    return sum(forest.shares(node.used), Fraction(0))


def cpus(_forest: Forest, node: Pool) -> Fraction:
    return node.used[0]


def slots(_forest: Forest, node: Pool) -> Fraction:
    return Fraction(sum(client.slots for client in node.clients() if isinstance(client, Node)))


@pytest.mark.parametrize(
    ("policy", "measure"), [("asset", asset), ("single-resource", cpus), ("slots", slots)]
)
def test_policies_of_one_measure_choose_the_smallest(policy: str, measure: Measure) -> None:
    assert guarded_decisions(portion(15), 80, policy, measure) > portion(500)
