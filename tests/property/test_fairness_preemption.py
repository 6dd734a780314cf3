"""Preemption helps late clients as far as legal victims allow, and it terminates.

The engine's plans are compared with a definition that shares no code with it, task by task.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from croupier.lab.engine_cluster import EngineCluster
from croupier.lab.policies import Unrotated
from croupier.lab.solvers.filling import Machines
from croupier.lab.solvers.pools import Forest
from croupier.master.allocator import Rules
from croupier.model.ids import AgentId
from tests.harness.effort import portion
from tests.harness.guards import Checked, assert_guarded
from tests.reference.preemption import Preemption

TOLERANCE = Fraction(4, 5)
Machine = tuple[Fraction, ...]


def late_comers(number: int) -> tuple[Forest, list[Machine], list[str]]:
    """Return a tree, machines, and the clients that arrive once the others have everything."""
    chance = random.Random(f"late {number}")
    width = chance.randint(1, 3)
    machine = tuple(Fraction(chance.randint(8, 24)) for _ in range(width))
    machines = [machine] * chance.randint(2, 5)
    forest = Forest(tuple(amount * len(machines) for amount in machine))
    for top in range(chance.randint(2, 4)):
        for low in range(chance.randint(1, 3)):
            node = forest.add(f"p{top}/q{low}" + ("/x" if chance.random() < 0.3 else ""))
            need = [Fraction(chance.randint(0, 5)) for _ in range(width)]
            node.demand = tuple(need) if any(need) else (Fraction(1), *need[1:])
    for node in list(forest.root.nodes())[1:]:
        node.weight = Fraction(chance.choice((1, 2, 3)))
    paths = [client.path for client in forest.root.clients()]
    return forest, machines, chance.sample(paths, chance.randint(1, len(paths) - 1))


def begun(number: int) -> Preemption:
    """Return a run in which the early clients have everything and the late ones have arrived."""
    forest, machines, late = late_comers(number)
    run = Preemption(forest, Machines(machines), TOLERANCE)
    for path in late:
        forest.by_path[path].is_paused = True
    run.serve()
    for path in late:
        forest.by_path[path].is_paused = False
    run.serve()
    return run


def copied(run: Preemption, number: int) -> EngineCluster:
    """Return the engine with the same tasks on the same machines."""
    forest, machines, _ = late_comers(number)
    rules = Rules(hold_s=0.0, scarce=frozenset(), remembers_misfits=True)
    cluster = EngineCluster(forest, machines, Unrotated(), rules)
    for task in run.tasks:
        cluster.found(forest.by_path[task.client.path], AgentId(f"a{task.machine}"))
    return cluster


def test_each_round_reduces_the_missing_share() -> None:
    def checks() -> Iterator[Checked]:
        for number in range(portion(50)):
            run = begun(number)
            run.settle()
            for before, after in zip(run.missing, run.missing[1:], strict=False):
                yield Checked(True, after < before, (number, before, after))

    assert_guarded("less is missing after each preemption", checks(), portion(100))


def test_the_engine_preempts_the_same_tasks_as_the_definition() -> None:
    """Both start from the same placement, and help the first client that they can."""

    def checks() -> Iterator[Checked]:
        for number in range(portion(100)):
            slow = begun(number)
            fast = copied(slow, number)
            fast.fill()
            assert not fast.schedule, "the engine fitted a task that does not fit by the definition"
            was_helped = slow.help_one()
            assert fast.help_one(fast.preemptor(TOLERANCE)) == was_helped, number
            theirs = [(task.client.path, task.started) for task in slow.killed]
            mine = [(task.client.path, task.started) for task in fast.killed]
            yield Checked(was_helped, mine == theirs, (number, mine, theirs))

    assert_guarded("preempted tasks", checks(), portion(50))


def test_the_engine_ends_where_the_definition_does() -> None:
    """Compare every kill until preemption ends, with one resource."""

    def checks() -> Iterator[Checked]:
        for number in range(portion(40)):
            slow, fast, tolerance = full_cluster(number)
            slow.settle()
            fast.preempt(tolerance)
            mine = [task.started for task in fast.killed]
            theirs = [task.started for task in slow.killed]
            yield Checked(bool(theirs), mine == theirs, (number, mine, theirs))

    assert_guarded("preempted tasks, to the end", checks(), portion(25))


def full_cluster(number: int) -> tuple[Preemption, EngineCluster, Fraction]:
    """Return definition and engine when one client has everything and the others arrive."""
    chance = random.Random(f"night {number}")
    count, size = chance.randint(1, 5), chance.randint(6, 20)
    weights = [chance.choice((1, 2, 3, 5)) for _ in range(chance.randint(2, 4))]
    needs = [1, *(chance.randint(1, 4) for _ in weights[1:])]
    tolerance = chance.choice((Fraction(1, 2), TOLERANCE, Fraction(1)))
    machines = [(Fraction(size),)] * count
    forests = []
    for _ in range(2):
        forest = Forest((Fraction(count * size),))
        for index, (weight, need) in enumerate(zip(weights, needs, strict=True)):
            node = forest.add(f"c{index}")
            node.weight, node.demand, node.is_paused = (
                Fraction(weight),
                (Fraction(need),),
                index > 0,
            )
        forests.append(forest)
    slow = Preemption(forests[0], Machines(machines), tolerance)
    slow.serve()
    fast = EngineCluster(
        forests[1],
        machines,
        Unrotated(),
        Rules(hold_s=0.0, scarce=frozenset(), remembers_misfits=True),
    )
    fast.fill()
    for client in forests[0].root.clients():
        client.is_paused = False
    for client in forests[1].root.clients():
        client.is_paused = False
        fast.declare_demand(client)
    return slow, fast, tolerance
