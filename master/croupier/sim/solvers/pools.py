"""A tree of pools with tasks in it: the state on which reference policies choose.

Nothing is kept up to date between choices: a policy looks at the whole tree each time. That is
slow and easy to believe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from croupier.sim.solvers.continuous import Amounts


@dataclass(slots=True, eq=False)
class Pool:
    """A node: a pool with children, or a client with tasks of one kind.

    Attributes:
        path: its name, from the root; empty for the root.
        weight: against its siblings.
        factors: of the weight, by resource; None means 1 for all.
        guarantee: a floor by resource; 0 asks for nothing.
        demand: what one task takes; None for a pool with children.
        declared: what it said that a task takes, if that is something else.
        backlog: how many more tasks it wants; None means without end.
        is_paused: wants nothing for now.
        used: what its tasks, or those below it, hold.
        tasks: how many run; 0 for a pool with children.
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
        """Whether a client would take one more task."""
        return self.is_client and not self.is_paused and self.backlog != 0

    @property
    def is_alive(self) -> bool:
        """Whether anything below it runs or is wanted."""
        return any(self.used) or any(client.wants for client in self.clients())

    def clients(self) -> Iterator[Pool]:
        """The leaves below it, or itself."""
        return (node for node in self.nodes() if node.is_client)

    def nodes(self) -> Iterator[Pool]:
        """Itself and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def path_up(self) -> Iterator[Pool]:
        """Itself, its parent, and so on to the root."""
        node: Pool | None = self
        while node is not None:
            yield node
            node = node.parent


class Forest:
    """The pools of one cluster, and what that has in all.

    Attributes:
        totals: what the cluster has of each resource.
        root: above all pools.
        by_path: every pool and client; the root stands under "".
        rank: what comes first when policies see no difference; lower is earlier.
    """

    def __init__(self, totals: Amounts) -> None:
        """Begin without pools."""
        self.totals = totals
        self.root = Pool("", used=[Fraction(0)] * len(totals))
        self.by_path: dict[str, Pool] = {"": self.root}
        self.rank: dict[Pool, int] = {self.root: 0}

    def add(self, path: str) -> Pool:
        """The node at `path`, made with all above it if it is not there."""
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
        """Ties go to these first, in this order, and to the others as they were added."""
        listed = {path: i - len(paths) for i, path in enumerate(paths)}
        self.rank.update({self.by_path[path]: i for path, i in listed.items()})

    def start(self, client: Pool, count: int = 1) -> None:
        """Let a client have `count` more tasks (fewer, if negative)."""
        assert client.demand is not None
        for node in client.path_up():
            node.used = [u + count * d for u, d in zip(node.used, client.demand, strict=True)]
        client.tasks += count
        if client.backlog is not None:
            client.backlog -= max(count, 0)

    def hold(self, client: Pool, amounts: Amounts) -> None:
        """Charge what is no whole number of tasks."""
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
        """What part of the cluster `amounts` are; 0 of what the cluster does not have."""
        return [
            amount / total if total else Fraction(0)
            for amount, total in zip(amounts, self.totals, strict=True)
        ]

    def dominant(self, node: Pool, amounts: Sequence[Fraction] | None = None) -> Fraction:
        """The largest part of any resource, over the node's factors, of `amounts` or its use."""
        shares = self.shares(node.used if amounts is None else amounts)
        if node.factors is not None:
            shares = [s / f for s, f in zip(shares, node.factors, strict=True)]
        return max(shares, default=Fraction(0))
