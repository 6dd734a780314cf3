"""Whole tasks on machines: give one to whom the rule picks, until nobody fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from croupier.sim.solvers.continuous import Amounts, Undefined
from croupier.sim.solvers.hdrf import Rule
from croupier.sim.solvers.pools import Forest, Pool

MAX_TASKS = 50_000


class Machines:
    """What each machine has left."""

    def __init__(self, capacities: Iterable[Sequence[Fraction]]) -> None:
        """Begin empty."""
        self.free = [list(capacity) for capacity in capacities]

    def left(self) -> list[Fraction]:
        """What all machines together have left."""
        return [sum(parts, Fraction(0)) for parts in zip(*self.free, strict=True)]

    def fits(self, index: int, amounts: Sequence[Fraction]) -> bool:
        """Whether machine `index` has room for `amounts`."""
        return all(a <= f for a, f in zip(amounts, self.free[index], strict=True))

    def first_fit(self, amounts: Sequence[Fraction]) -> int | None:
        """The first machine with room for `amounts`."""
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
        schedule: whose task was started, in order.
        placed: the machines of each client's tasks, in order of their start.
    """

    def __init__(self, forest: Forest, machines: Machines) -> None:
        """Begin with what runs in `forest` already taken off `machines`."""
        self.forest = forest
        self.machines = machines
        self.schedule: list[Pool] = []
        self.placed: dict[Pool, list[int]] = {client: [] for client in forest.root.clients()}

    def fill(self, rule: Rule, told: Callable[[Pool], None] | None = None) -> None:
        """Serve whom the rule picks of those that fit, first fit, until nobody does.

        `told` hears of each task after it was started.

        Raises:
            Undefined: if more than 50,000 tasks would be started.
        """
        while (client := rule.pick(self.forest, self.can_start)) is not None:
            self.start(client, self._room(client))
            if told is not None:
                told(client)

    def fill_without_skipping(self, rule: Rule) -> None:
        """Fill machine by machine, as in Theorem 7 of the DRF paper.

        A machine is left when the largest task in each resource no longer fits; whom the rule
        picks is served, whoever else could be.

        Raises:
            Undefined: as of `fill`.
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
        """Whether a client wants a task and some machine has room for it."""
        return client.wants and self.machines.first_fit(demand_of(client)) is not None

    def _room(self, client: Pool) -> int:
        index = self.machines.first_fit(demand_of(client))
        assert index is not None, "picked, though it does not fit"
        return index


def demand_of(client: Pool) -> Amounts:
    """What one task of a client takes."""
    assert client.demand is not None, f"{client.path} is a pool"
    return client.demand
