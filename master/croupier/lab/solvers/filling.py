"""Whole tasks on machines: start a task of the client that a rule picks, until none fits.

The rule here is H-DRF, by its definition. Shares are exact; `Forest.rank` breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Protocol

from croupier.lab.solvers.continuous import Amounts, Undefined
from croupier.lab.solvers.pools import Forest, Pool

MAX_TASKS = 50_000
Eligible = Callable[[Pool], bool]
Key = tuple[int, Fraction]


class Rule(Protocol):
    """A policy that chooses among the clients of a forest."""

    def pick(self, forest: Forest, is_eligible: Eligible) -> Pool | None:
        """Return the eligible client to serve next; None if no client is eligible."""


class HDRF:
    """Hierarchical DRF of Bhattacharya et al., SoCC 2013, with weights.

    A pool's use is the sum of its children's, after the use of those that are not blocked is scaled
    down to the least share (over weight) among them. A client that needs a resource without free
    amount is blocked: it is not scaled and not in the minimum. Shares are of the other resources.
    """

    def __init__(self, free: Callable[[], Sequence[Fraction]]) -> None:
        """`free` returns the free amount of each resource."""
        self._free = free

    def pick(self, forest: Forest, is_eligible: Eligible) -> Pool | None:
        """See `Rule`."""
        is_open = [left > 0 for left in self._free()]

        def key(node: Pool) -> Key | None:
            if not any(is_eligible(client) for client in node.clients()):
                return None
            use, is_blocked = self._rescaled(forest, node, is_open)
            return None if is_blocked else (1, _largest(use, is_open) / node.weight)

        return descend(forest, key)

    def _rescaled(
        self, forest: Forest, node: Pool, is_open: Sequence[bool]
    ) -> tuple[list[Fraction], bool]:
        """Return the rescaled shares of a node, and whether it is blocked."""
        if node.demand is not None:
            needs = zip(node.demand, is_open, strict=True)
            is_blocked = not node.wants or any(need > 0 and not o for need, o in needs)
            return forest.shares(node.used), is_blocked
        children = [(child, *self._rescaled(forest, child, is_open)) for child in node.children]
        least = min(
            (
                _largest(use, is_open) / child.weight
                for child, use, blocked in children
                if not blocked
            ),
            default=Fraction(0),
        )
        total = [Fraction(0)] * len(is_open)
        for child, use, blocked in children:
            share = _largest(use, is_open)
            scale = least * child.weight / share if share and not blocked else Fraction(1)
            total = [t + scale * u for t, u in zip(total, use, strict=True)]
        return total, all(blocked for _, _, blocked in children)


def descend(forest: Forest, key: Callable[[Pool], Key | None]) -> Pool | None:
    """Go down from the root by the least key until a client; None if no key is left."""
    node = forest.root
    while not node.is_client:
        keys = [(key(child), forest.rank[child], child) for child in node.children]
        ranked = [(found, rank, child) for found, rank, child in keys if found is not None]
        if not ranked:
            return None
        node = min(ranked, key=lambda item: item[:2])[2]
    return node


def _largest(shares: Sequence[Fraction], is_open: Sequence[bool]) -> Fraction:
    return max((s for s, o in zip(shares, is_open, strict=True) if o), default=Fraction(0))


class Machines:
    """The free amounts of each machine."""

    def __init__(self, capacities: Iterable[Sequence[Fraction]]) -> None:
        self.free = [list(capacity) for capacity in capacities]

    def left(self) -> list[Fraction]:
        """Return the free amounts of all machines together."""
        return [sum(parts, Fraction(0)) for parts in zip(*self.free, strict=True)]

    def fits(self, index: int, amounts: Sequence[Fraction]) -> bool:
        """Return whether machine `index` has room for `amounts`."""
        return all(a <= f for a, f in zip(amounts, self.free[index], strict=True))

    def first_fit(self, amounts: Sequence[Fraction]) -> int | None:
        """Return the first machine with room for `amounts`; None if there is none."""
        indices = range(len(self.free))
        return next((index for index in indices if self.fits(index, amounts)), None)

    def take(self, index: int, amounts: Sequence[Fraction]) -> None:
        """Use `amounts` of machine `index`."""
        self.free[index] = [f - a for a, f in zip(amounts, self.free[index], strict=True)]

    def give_back(self, index: int, amounts: Sequence[Fraction]) -> None:
        """Free `amounts` of machine `index`."""
        self.free[index] = [f + a for a, f in zip(amounts, self.free[index], strict=True)]


class Filling:
    """Clients' tasks on machines.

    Attributes:
        schedule: the client of each started task, in order.
        placed: the machines of each client's tasks, in order of their start.
    """

    def __init__(self, forest: Forest, machines: Machines) -> None:
        """Take over `machines`, from which the tasks that run in `forest` are already taken."""
        self.forest = forest
        self.machines = machines
        self.schedule: list[Pool] = []
        self.placed: dict[Pool, list[int]] = {client: [] for client in forest.root.clients()}

    def fill(self, rule: Rule, on_start: Callable[[Pool], None] | None = None) -> None:
        """Start tasks of the clients that the rule picks, first fit, until no client's task fits.

        `on_start` is called after each start. Raises Undefined if more than 50,000 tasks would be
        started.
        """
        while (client := rule.pick(self.forest, self.can_start)) is not None:
            self.start(client, self._room(client))
            if on_start is not None:
                on_start(client)

    def fill_without_skipping(self, rule: Rule) -> None:
        """Fill machine by machine, as in Theorem 7 of the DRF paper.

        A machine is left when the largest task in each resource no longer fits; the rule picks
        among all clients, whether their tasks fit or not. Raises Undefined as of `fill`.
        """
        demands = [client.demand for client in self.forest.root.clients() if client.demand]
        largest = tuple(map(max, zip(*demands, strict=True)))
        for index in range(len(self.machines.free)):
            while self.machines.fits(index, largest):
                client = rule.pick(self.forest, lambda client: client.wants)
                if client is None:
                    return
                self.start(client, index)

    def start(self, client: Pool, index: int) -> None:
        """Start a task of `client` on machine `index`."""
        if len(self.schedule) >= MAX_TASKS:
            raise Undefined(f"more than {MAX_TASKS} tasks: too many to try one by one")
        self.machines.take(index, demand_of(client))
        self.forest.start(client)
        self.schedule.append(client)
        self.placed[client].append(index)

    def finish(self, client: Pool) -> None:
        """End the client's oldest task."""
        self.machines.give_back(self.placed[client].pop(0), demand_of(client))
        self.forest.start(client, -1)

    def can_start(self, client: Pool) -> bool:
        """Return whether a client wants a task and a machine has room for it."""
        return client.wants and self.machines.first_fit(demand_of(client)) is not None

    def _room(self, client: Pool) -> int:
        index = self.machines.first_fit(demand_of(client))
        assert index is not None, "picked, though it does not fit"
        return index


def demand_of(client: Pool) -> Amounts:
    """Return the amounts that one task of a client takes."""
    assert client.demand is not None, f"{client.path} is a pool"
    return client.demand
