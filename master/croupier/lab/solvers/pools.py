"""A tree of pools with their tasks: the state from which rules choose.

Nothing is cached: a rule reads the whole tree for each choice, which is slow but simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from croupier.lab.solvers.continuous import Amounts


@dataclass(slots=True, eq=False)
class Pool:
    """A node: a pool with children, or a client with tasks of one kind.

    Attributes:
        path: its name, from the root; empty for the root.
        weight: against its siblings.
        factors: of the weight, by resource; None means 1 for all.
        guarantee: a floor by resource; 0 means none.
        demand: the amounts of one task; None for a pool with children.
        declared: the amounts that it declares for a task, if they differ.
        backlog: the number of tasks that it still wants; None means without end.
        is_paused: whether it wants no task for now.
        used: the amounts that its tasks, or those below it, hold.
        tasks: the number of running tasks; 0 for a pool with children.
    """

    path: str
    weight: Fraction = Fraction(1)
    factors: Amounts | None = None
    guarantee: Amounts | None = None
    demand: Amounts | None = None
    declared: Amounts | None = None
    backlog: int | None = None
    is_paused: bool = False
    parent: Pool | None = None
    children: list[Pool] = field(default_factory=list)
    used: list[Fraction] = field(default_factory=list)
    tasks: int = 0

    @property
    def is_client(self) -> bool:
        """Whether it is a leaf, with tasks of its own."""
        return self.demand is not None

    @property
    def wants(self) -> bool:
        """Whether it is a client that would take one more task."""
        return self.is_client and not self.is_paused and self.backlog != 0

    @property
    def is_alive(self) -> bool:
        """Whether anything below it runs or is wanted."""
        return any(self.used) or any(client.wants for client in self.clients())

    def clients(self) -> Iterator[Pool]:
        """Yield the clients below it, or itself."""
        return (node for node in self.nodes() if node.is_client)

    def nodes(self) -> Iterator[Pool]:
        """Yield itself and all nodes below it, parents first."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def path_up(self) -> Iterator[Pool]:
        """Yield itself, its parent, and so on to the root."""
        node: Pool | None = self
        while node is not None:
            yield node
            node = node.parent


class Forest:
    """The pools of one cluster, and its total amounts.

    Attributes:
        totals: the cluster's amount of each resource.
        by_path: every pool and client; the root stands under "".
        rank: the tie-breaker between siblings; the lowest comes first.
    """

    def __init__(self, totals: Amounts) -> None:
        self.totals = totals
        self.root = Pool("", used=[Fraction(0)] * len(totals))
        self.by_path: dict[str, Pool] = {"": self.root}
        self.rank: dict[Pool, int] = {self.root: 0}

    def add(self, path: str) -> Pool:
        """Return the node at `path`; add it and all above it if missing."""
        parent = self.root
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth])
            node = self.by_path.get(name)
            if node is None:
                node = Pool(name, parent=parent, used=[Fraction(0)] * len(self.totals))
                parent.children.append(node)
                self.by_path[name] = node
                self.rank[node] = len(self.rank)
            parent = node
        return parent

    def prefer(self, paths: Sequence[str]) -> None:
        """Break ties in this order, and then in the order in which nodes were added."""
        listed = {path: i - len(paths) for i, path in enumerate(paths)}
        self.rank.update({self.by_path[path]: i for path, i in listed.items()})

    def start(self, client: Pool, count: int = 1) -> None:
        """Start `count` tasks of a client; end tasks if negative."""
        assert client.demand is not None
        for node in client.path_up():
            node.used = [u + count * d for u, d in zip(node.used, client.demand, strict=True)]
        client.tasks += count
        if client.backlog is not None:
            client.backlog -= max(count, 0)

    def hold(self, client: Pool, amounts: Amounts) -> None:
        """Charge amounts that need not be a whole number of tasks."""
        for node in client.path_up():
            node.used = [u + a for u, a in zip(node.used, amounts, strict=True)]

    def parts_by_weight(self, is_counted: Callable[[Pool], bool]) -> dict[Pool, Fraction]:
        """Return the part of the cluster that weights alone give each counted node."""
        parts = {self.root: Fraction(1)}
        for node in self.root.nodes():
            if node in parts:
                counted = [child for child in node.children if is_counted(child)]
                total = sum((child.weight for child in counted), Fraction(0))
                parts.update({child: parts[node] * child.weight / total for child in counted})
        return parts

    def shares(self, amounts: Sequence[Fraction]) -> list[Fraction]:
        """Return `amounts` as parts of the cluster; 0 for a resource that the cluster lacks."""
        return [
            amount / total if total else Fraction(0)
            for amount, total in zip(amounts, self.totals, strict=True)
        ]

    def dominant(self, node: Pool, amounts: Sequence[Fraction] | None = None) -> Fraction:
        """Return the largest share, over the node's factors, of `amounts` or of its use."""
        shares = self.shares(node.used if amounts is None else amounts)
        if node.factors is not None:
            shares = [s / f for s, f in zip(shares, node.factors, strict=True)]
        return max(shares, default=Fraction(0))
