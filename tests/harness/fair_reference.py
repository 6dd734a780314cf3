"""The neediest leaf by the definitions alone: recursive, in fractions, without stored orders.

Written from what the policies promise (hierarchical DRF by least satisfaction, guarantees
first, the least recently dealt on ties); it shares no code with the engine. Every question
goes through the whole tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

Q = 1 << 16
Scalars = dict[str, int]
# (0, the met part of the guarantee) below a guarantee; else (1, measure).
Level = tuple[int, Fraction]


@dataclass(eq=False)
class RefNode:
    """A role or a framework in a role; amounts in thousandths."""

    name: str
    arrival: int
    weight: int = 1000
    by_resource: Mapping[str, int] = field(default_factory=dict)
    guarantee: Mapping[str, int] = field(default_factory=dict)
    offered: Scalars = field(default_factory=dict)
    used: Scalars = field(default_factory=dict)
    # Of a framework: the shapes that it declared; None is none.
    units: list[Scalars] | None = None
    slots: int = 0
    is_willing: bool = False
    dealt_at: int = 0
    children: list[RefNode] = field(default_factory=list)
    is_leaf: bool = False
    # A principal in a role: a client like a framework, whatever the number of its frameworks.
    is_principal: bool = False

    def leaves(self) -> Iterator[RefNode]:
        if self.is_leaf:
            yield self
        for child in self.children:
            yield from child.leaves()

    def held(self) -> Scalars:
        total: Scalars = {}
        for leaf in self.leaves():
            for part in (leaf.offered, leaf.used):
                for name, milli in part.items():
                    total[name] = total.get(name, 0) + milli
        return {name: milli for name, milli in total.items() if milli}

    def slots_below(self) -> int:
        return sum(leaf.slots for leaf in self.leaves())

    @property
    def is_alive(self) -> bool:
        return bool(self.held()) or any(leaf.is_willing for leaf in self.leaves())


Measure = Callable[["RefNode", Scalars], Fraction]


def shares(amounts: Mapping[str, int], totals: Scalars) -> dict[str, Fraction]:
    return {n: Fraction(m, totals[n]) for n, m in amounts.items() if m and totals.get(n)}


def dominant(node: RefNode, totals: Scalars) -> Fraction:
    weighted = (
        share * 1000 / node.by_resource.get(name, 1000)
        for name, share in shares(node.held(), totals).items()
    )
    return max(weighted, default=Fraction(0))


def need(node: RefNode) -> Level | None:
    parts = [
        Fraction(node.held().get(name, 0), least) for name, least in node.guarantee.items() if least
    ]
    # A node that holds resources, but none that its guarantee names, does not need them.
    if not parts or (node.held() and not any(parts)):
        return None
    return (0, max(parts)) if max(parts) < 1 else None


def _rounded_up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


def direction(node: RefNode, totals: Scalars) -> dict[str, int]:
    """Return the direction in parts of Q; over the weights by resource, its largest part is Q."""
    if node.is_principal:
        used: Scalars = {}
        for leaf in node.leaves():
            for name, milli in leaf.used.items():
                used[name] = used.get(name, 0) + milli
        if any(used.values()):
            return direction(RefNode("", 0, used=used, is_leaf=True), totals)
    if not node.is_leaf:
        pull, whole = pulls(node, totals)
        return {name: _rounded_up(each * Q / whole) for name, each in pull.items()}
    units = [node.used] if any(node.used.values()) else (node.units or [])
    if not units:
        return dict.fromkeys(totals, Q)
    widest: dict[str, int] = {}
    for unit in units:
        parts = shares(unit, totals)
        most = max(parts.values(), default=None)
        for name in totals if most is None else parts:
            part = Q if most is None else _rounded_up(Q * parts[name] / most)
            widest[name] = max(widest.get(name, 0), part)
    return widest


def pulls(pool: RefNode, totals: Scalars) -> tuple[dict[str, Fraction], Fraction]:
    """Return the sum of the live children's weighted directions, and S of the pool."""
    pull: dict[str, Fraction] = {}
    for child in pool.children:
        if child.is_alive:
            for name, part in direction(child, totals).items():
                pull[name] = pull.get(name, Fraction(0)) + Fraction(child.weight * part, 1000)
    over = (each * 1000 / pool.by_resource.get(name, 1000) for name, each in pull.items())
    return pull, max(over, default=Fraction(Q))


@dataclass
class Reference:
    """The whole tree.

    Attributes:
        totals: thousandths of each resource of the cluster.
        measure: the number compared between siblings; None is DRF by least satisfaction.
    """

    totals: Scalars
    measure: Measure | None = None
    root: RefNode = field(default_factory=lambda: RefNode("", 0))

    def own(self, node: RefNode) -> Level:
        measure = self.measure or dominant
        return need(node) or (1, measure(node, self.totals))

    def kappa(self, node: RefNode, level: Level) -> Level:
        tier, number = level
        return (tier, number * 1000 / node.weight) if tier else level

    def level(self, node: RefNode, eligible: set[RefNode]) -> Level | None:
        """Return the level; None if no eligible leaf is below."""
        if node.is_leaf:
            return self.own(node) if node in eligible else None
        levels = [
            self.kappa(child, level)
            for child in node.children
            if (level := self.level(child, eligible)) is not None
        ]
        if not levels:
            return None
        tier, number = min(levels)
        own = self.own(node)
        if node.is_principal:
            return own
        if self.measure is not None:
            return (tier, number) if tier < own[0] else own
        if tier:
            number = number * pulls(node, self.totals)[1] / Q
        return min(own, (tier, number))

    def neediest(self, eligible: set[RefNode]) -> RefNode | None:
        node = self.root
        while not node.is_leaf:
            ranked = [
                (self.kappa(child, level), child.dealt_at, child.arrival, child)
                for child in node.children
                if (level := self.level(child, eligible)) is not None
            ]
            if not ranked:
                return None
            node = min(ranked, key=lambda each: each[:3])[3]
        return node

    def entitlements(self) -> dict[str, Fraction]:
        """Return the entitlements of all live nodes, by name."""
        found = {"": Fraction(1)}
        waiting = [self.root]
        while waiting:
            pool = waiting.pop()
            if not pool.children:
                continue
            whole = pulls(pool, self.totals)[1]
            for child in pool.children:
                if child.is_alive:
                    due = found[pool.name] * Fraction(child.weight, 1000) * Q / whole
                    found[child.name] = due
                    waiting.append(child)
        return found
