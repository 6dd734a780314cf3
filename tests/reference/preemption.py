"""Preemption that terminates, from its definition.

A client starves when it wants more and its share is under the tolerance times its
entitlement. Room for one task of it is made on one machine, by killing tasks of clients over
their entitlement: the most over it first, of one client the youngest first. A kill is legal if
neither the victim nor a pool between it and what both have in common falls under its
entitlement, and the starving side does not end higher than the victim's side was before.
Victims that turn out not to be needed are spared.

It terminates: each round brings a client under its entitlement nearer to it, and no other client
under it, so the sum of missing shares falls each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from croupier.lab.solvers.continuous import Undefined
from croupier.lab.solvers.filling import Filling, Machines, demand_of
from croupier.lab.solvers.pools import Forest, Pool
from tests.reference.rules import MinSatisfactionByUse

_MAX_ROUNDS = 20_000


@dataclass(frozen=True, slots=True)
class Running:
    """A running task; the youngest has the largest `started`."""

    client: Pool
    machine: int
    started: int


class Preemption:
    """A cluster that preempts for starving clients.

    Attributes:
        forest: the clients, and what they hold.
        tasks: the running tasks, in order of start.
        killed: the preempted tasks, in order.
        missing: the sum of missing shares before each round and after the last one.
    """

    def __init__(self, forest: Forest, machines: Machines, tolerance: Fraction) -> None:
        """Begin without tasks; starving is under `tolerance` of the entitlement."""
        self._filling = Filling(forest, machines)
        self.forest = forest
        self._machines = machines
        self._tolerance = tolerance
        self._rule = MinSatisfactionByUse()
        self._entitled: dict[Pool, Fraction] = {}
        self._clock = 0
        self.tasks: list[Running] = []
        self.killed: list[Running] = []
        self.missing: list[Fraction] = []

    def start(self, client: Pool, count: int) -> None:
        """Start `count` tasks, each on the first machine with room.

        Raises:
            Undefined: if they do not fit.
        """
        for _ in range(count):
            machine = self._machines.first_fit(demand_of(client))
            if machine is None:
                raise Undefined(f"{count} tasks of {client.path} do not fit")
            self._start_on(client, machine)

    def settle(self) -> None:
        """Start tasks that fit, and preempt for starving clients, until none can be helped."""
        self.serve()
        for _ in range(_MAX_ROUNDS):
            if not self.help_one():
                return
            self.serve()
        raise AssertionError("preemption never ends")

    def help_one(self) -> bool:
        """Preempt for one task of a starving client; return whether one could be helped."""
        self._entitled = self._rule.entitlements(self.forest)
        self.missing.append(self._sum_missing())
        return any(self._help(client) for client in self._starving())

    def serve(self) -> None:
        """Start tasks that fit, by least satisfaction."""

        def noted(client: Pool) -> None:
            self.tasks.append(Running(client, self._filling.placed[client][-1], self._clock))
            self._clock += 1

        self._filling.fill(self._rule, noted)

    def _start_on(self, client: Pool, machine: int) -> None:
        self._filling.start(client, machine)
        self.tasks.append(Running(client, machine, self._clock))
        self._clock += 1

    def _sum_missing(self) -> Fraction:
        lacks = [
            self._tolerance * self._entitled.get(client, 0) - self.forest.dominant(client)
            for client in self.forest.root.clients()
        ]
        return sum((lack for lack in lacks if lack > 0), Fraction(0))

    def _starving(self) -> list[Pool]:
        """Return the starving clients, the neediest first."""
        satisfied = {
            client: self.forest.dominant(client) / self._entitled[client]
            for client in self.forest.root.clients()
            if client.wants
        }
        starving = [client for client, part in satisfied.items() if part < self._tolerance]
        return sorted(starving, key=lambda c: (satisfied[c], self.forest.rank[c]))

    def _help(self, client: Pool) -> bool:
        """Preempt for `client` and start its task; False if that is not legal anywhere."""
        tried: set[int] = set()
        for task in self._in_order(client, None):
            if task.machine in tried or not self._is_legal(task, client):
                continue
            tried.add(task.machine)
            victims = self._victims_on(task.machine, client)
            if victims is not None:
                for victim in victims:
                    self._kill(victim)
                self._start_on(client, task.machine)
                return True
        return False

    def _victims_on(self, machine: int, client: Pool) -> list[Running] | None:
        """Return the victims on `machine` for a task of `client`; None if that is not legal."""
        need = demand_of(client)
        free = list(self._machines.free[machine])
        victims: list[Running] = []
        try:
            for task in self._in_order(client, machine):
                short = [n - f for n, f in zip(need, free, strict=True)]
                if max(short) <= 0:
                    break
                taken = demand_of(task.client)
                helps = any(s > 0 and t > 0 for s, t in zip(short, taken, strict=True))
                if helps and self._is_legal(task, client):
                    self.forest.hold(task.client, tuple(-t for t in taken))
                    free = [f + t for f, t in zip(free, taken, strict=True)]
                    victims.append(task)
        finally:
            for task in victims:
                self.forest.hold(task.client, demand_of(task.client))
        if any(n > f for n, f in zip(need, free, strict=True)):
            return None
        return _without_superfluous(victims, [f - n for n, f in zip(need, free, strict=True)])

    def _in_order(self, client: Pool, machine: int | None) -> Iterator[Running]:
        """Yield tasks in the order in which they would be preempted for `client`."""
        seen: set[int] = set()
        while True:
            task = self._first_of(self.forest.root, set(client.path_up()), client, machine, seen)
            if task is None:
                return
            seen.add(task.started)
            yield task

    def _first_of(
        self, node: Pool, above: set[Pool], client: Pool, machine: int | None, seen: set[int]
    ) -> Running | None:
        if node.is_client:
            own = [
                task
                for task in self.tasks
                if task.client is node
                and task.started not in seen
                and machine in (None, task.machine)
            ]
            return own[-1] if own else None
        over = {
            child: self.forest.dominant(child) / self._entitled[child]
            for child in node.children
            if child in self._entitled and child is not client
        }
        rank = self.forest.rank
        for child in sorted(over, key=lambda c: (-over[c], rank[c])):
            if over[child] > 1 or child in above:
                found = self._first_of(child, above, client, machine, seen)
                if found is not None:
                    return found
        return None

    def _is_legal(self, task: Running, client: Pool) -> bool:
        above = list(client.path_up())
        taken = demand_of(task.client)
        side = task.client
        for node in task.client.path_up():
            if node in above:
                break
            rest = [u - t for u, t in zip(node.used, taken, strict=True)]
            if self.forest.dominant(node, rest) < self._entitled[node]:
                return False
            side = node
        before = self.forest.dominant(side) / self._entitled[side]
        mine = next(node for node in above if node.parent is side.parent)
        grown = [u + n for u, n in zip(mine.used, demand_of(client), strict=True)]
        return self.forest.dominant(mine, grown) / self._entitled[mine] <= before

    def _kill(self, task: Running) -> None:
        self.tasks.remove(task)
        self.killed.append(task)
        self._filling.placed[task.client].remove(task.machine)
        self._machines.give_back(task.machine, demand_of(task.client))
        self.forest.start(task.client, -1)
        if task.client.backlog is not None:
            task.client.backlog += 1


def _without_superfluous(victims: list[Running], spare: list[Fraction]) -> list[Running]:
    """Return `victims` without those that fit into the resources freed beyond need."""
    kept = []
    for task in victims:
        taken = demand_of(task.client)
        if all(t <= s for t, s in zip(taken, spare, strict=True)):
            spare = [s - t for t, s in zip(taken, spare, strict=True)]
        else:
            kept.append(task)
    return kept
