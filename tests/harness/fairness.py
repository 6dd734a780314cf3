"""Random clusters, allocated by the real allocator, and properties that the outcome must have.

The properties are those of the DRF paper, adapted to indivisible tasks: each allows a slack of
about one task, and is checked only where the slack leaves a bound. Each is a function that takes
an allocator and yields checks, so that tests can apply it to deliberately broken policies too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from croupier.lab.solvers import continuous
from croupier.lab.solvers.continuous import User
from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.policies import Policy
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.harness.allocator_invariants import check_allocator
from tests.harness.guards import Checked

NAMES = ("cpus", "mem", "gpus")
Vec = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Machines, and clients with endless tasks of one kind, in thousandths.

    Attributes:
        skips: if a client's task does not fit, the allocator serves the next client; if False,
            it allocates nothing more on this machine.
    """

    machines: tuple[Vec, ...]
    tasks: tuple[Vec, ...]
    weights: tuple[int, ...]
    skips: bool = True

    @property
    def total(self) -> Vec:
        return tuple(map(sum, zip(*self.machines, strict=True)))

    @property
    def deltas(self) -> list[Fraction]:
        """Return the share of one task of each client."""
        return [share(task, self.total) for task in self.tasks]


@dataclass(frozen=True)
class Outcome:
    """The allocated tasks as (client, machine), in order."""

    case: Case
    deals: tuple[tuple[int, int], ...]

    @property
    def counts(self) -> list[int]:
        return [sum(c == client for c, _ in self.deals) for client in range(len(self.case.tasks))]

    def levels(self) -> list[Fraction]:
        """Return each client's share over its weight."""
        each = zip(self.counts, self.case.deltas, self.case.weights, strict=True)
        return [count * delta / weight for count, delta, weight in each]

    def free(self) -> list[list[int]]:
        left = [list(machine) for machine in self.case.machines]
        for client, machine in self.deals:
            task = self.case.tasks[client]
            left[machine] = [f - t for f, t in zip(left[machine], task, strict=True)]
        return left


Deal = Callable[[Case], Outcome]


def by_policy(make: Callable[[], Policy | None]) -> Deal:
    """Return a function that allocates under a policy, and checks invariants after each step."""

    def deal(case: Case) -> Outcome:
        settings = {Role(f"c{i}"): RoleSettings(1000 * w) for i, w in enumerate(case.weights)}
        rules = Rules(hold_s=0, scarce=frozenset(), skips=case.skips, remembers_misfits=True)
        allocator = Allocator(make(), rules, settings)
        for client, task in enumerate(case.tasks):
            framework_id = FrameworkId(str(client))
            allocator.add_framework(framework_id, (Role(f"c{client}"),))
            allocator.set_demand(framework_id, (Demand(resources(task)),))
            allocator.connect(framework_id, True)
        for machine, capacity in enumerate(case.machines):
            allocator.add_agent(AgentId(str(machine)), resources(capacity))
        found = []
        while allocator.has_dirty_agents:
            for grant in allocator.run(0.0, budget=1):
                place = (int(grant.framework_id), int(grant.agent_id))
                found += [(number, *place) for number in grant.deals]
            check_allocator(allocator)
        return Outcome(case, tuple((client, machine) for _, client, machine in sorted(found)))

    return deal


def stopping_after(deal: Deal, tasks: int) -> Deal:
    """Return a function that allocates as `deal` does, but stops after so many tasks."""
    return lambda case: Outcome(case, deal(case).deals[:tasks])


def resources(amounts: Sequence[int]) -> Resources:
    return Resources(dict(zip(NAMES, amounts, strict=False)))


def share(amounts: Sequence[int], total: Sequence[int]) -> Fraction:
    return max(Fraction(a, t) for a, t in zip(amounts, total, strict=True))


def fits(task: Sequence[int], free: Sequence[int]) -> bool:
    return all(t <= f for t, f in zip(task, free, strict=True))


def tasks_in(bundle: Sequence[int], task: Vec) -> Fraction:
    """Return how many tasks fit in a bundle, if tasks were divisible."""
    return min(Fraction(b, t) for b, t in zip(bundle, task, strict=True) if t > 0)


def times(count: int, task: Vec) -> list[int]:
    return [count * amount for amount in task]


def level_of_continuous(case: Case) -> Fraction:
    """Return the least share over weight if tasks were divisible."""
    capacity = tuple(Fraction(amount) for amount in case.total)
    users = [
        User(tuple(Fraction(t) for t in task), (Fraction(weight),) * len(task))
        for task, weight in zip(case.tasks, case.weights, strict=True)
    ]
    counts = continuous.drf(capacity, users)
    each = zip(counts, case.deltas, case.weights, strict=True)
    return min(count * delta / weight for count, delta, weight in each)


# Random clusters: small numbers, so that ties and misfits are common.


def one_machine(
    chance: random.Random, *, zeros: bool = False, most: int = 80, big: int = 9
) -> Case:
    """Return two to five clients of weights 1 to 3 on one machine."""
    width = chance.randint(1, 3)
    machine = tuple(chance.randint(12, most) for _ in range(width))
    tasks: list[Vec] = []
    while len(tasks) < 2 or (len(tasks) < 5 and chance.random() < 0.6):
        task = tuple(chance.randint(0 if zeros else 1, big) for _ in range(width))
        if any(task) and fits(task, machine):
            tasks.append(task)
    return Case((machine,), tuple(tasks), tuple(chance.choice((1, 1, 2, 3)) for _ in tasks))


def cases(count: int, seed: int = 0) -> Iterator[tuple[Case, random.Random]]:
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        yield one_machine(chance, zeros=chance.random() < 0.3), chance


def on_machines(case: Case, count: int, *, skips: bool = True) -> Case:
    """Return the same clients on so many copies of the machine."""
    return Case(case.machines * count, case.tasks, case.weights, skips)


def unweighted(case: Case) -> Case:
    return Case(case.machines, case.tasks, (1,) * len(case.tasks), case.skips)


def never_skipping(chance: random.Random) -> Case:
    """Return one machine that is left when the neediest client's task does not fit.

    All clients need every resource.
    """
    case = one_machine(chance)
    return Case(case.machines, case.tasks, case.weights, skips=False)


# The properties.


def pareto(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that no task of any client fits on any machine at the end."""
    for case, chance in cases(count):
        outcome = deal(on_machines(case, chance.randint(1, 3)))
        free = outcome.free()
        stuck = all(not fits(task, left) for task in case.tasks for left in free)
        yield Checked(bool(outcome.deals) or not stuck, stuck, outcome)


def sharing_incentive(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that a client's share exceeds its part by weight, less one task of every client."""
    for case, _ in cases(count):
        outcome = deal(case)
        slack = 1 - sum(case.deltas)
        for level in outcome.levels():
            bound = slack / sum(case.weights)
            yield Checked(bound > 0, level > bound, outcome)


def sharing_on_machines(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that the least level is near the level of divisible tasks, machine by machine."""
    for number in range(count):
        chance = random.Random(f"machines {number}")
        machines = chance.randint(1, 6)
        case = on_machines(never_skipping(chance), machines, skips=False)
        outcome = deal(case)
        largest = [max(column) for column in zip(*case.tasks, strict=True)]
        slack = machines * share(largest, case.total) + sum(case.deltas)
        level = level_of_continuous(case)
        bound = level * (1 - slack)
        yield Checked(bound > 0, bound <= min(outcome.levels()) <= level, outcome)


def envy_up_to_one(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that no client could run more tasks in another's bundle, less one of its tasks."""
    for weighted, _ in cases(count):
        case = unweighted(weighted)
        outcome = deal(case)
        counts = outcome.counts
        for one, other in permutations(range(len(counts)), 2):
            nu = tasks_in(case.tasks[other], case.tasks[one])
            there = tasks_in(times(counts[other] - 1, case.tasks[other]), case.tasks[one]) // 1
            yield Checked(counts[other] >= 2 and nu > 0, there <= counts[one], outcome)


def envy_on_machines(deal: Deal, count: int) -> Iterator[Checked]:
    """Check the same with weights and several machines.

    `other` may have up to one more task on each machine where it got tasks after those of `one`
    no longer fitted.
    """
    for small, chance in cases(count, seed=1):
        case = on_machines(small, chance.randint(1, 4))
        outcome = deal(case)
        counts, late = outcome.counts, _late(outcome)
        for one, other in permutations(range(len(counts)), 2):
            nu = tasks_in(case.tasks[other], case.tasks[one])
            ratio = Fraction(case.weights[one], case.weights[other])
            there, machines = ratio * (counts[other] - 1) * nu, late[one, other]
            holds = there < counts[one] + ratio * machines if machines else there <= counts[one]
            yield Checked(counts[other] >= 2 and nu > 0, holds, outcome)


def _late(outcome: Outcome) -> dict[tuple[int, int], int]:
    """Return on how many machines `other` got tasks that `one` had no room for, by pair."""
    case = outcome.case
    free = [list(machine) for machine in case.machines]
    seen: dict[tuple[int, int], set[int]] = {
        pair: set() for pair in permutations(range(len(case.tasks)), 2)
    }
    for other, machine in outcome.deals:
        for one, task in enumerate(case.tasks):
            if one != other and not fits(task, free[machine]):
                seen[one, other].add(machine)
        taken = case.tasks[other]
        free[machine] = [f - t for f, t in zip(free[machine], taken, strict=True)]
    return {pair: len(machines) for pair, machines in seen.items()}


def bottleneck(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that levels differ by at most a task of each, if all have one dominant resource."""
    for case, chance in cases(count, seed=2):
        total = case.total
        tasks = []
        for _ in case.tasks:
            most = chance.randint(1, 9)
            rest = (chance.randint(0, most * amount // total[0]) for amount in total[1:])
            tasks.append((most, *rest))
        common = Case(case.machines, tuple(tasks), case.weights)
        yield from _levels_within_a_task_of_each(deal(common))


def single_resource(deal: Deal, count: int) -> Iterator[Checked]:
    """Check the same for a cluster of one resource."""
    for case, _ in cases(count, seed=3):
        machine = (case.machines[0][:1],)
        tasks = tuple((max(task[0], 1),) for task in case.tasks)
        yield from _levels_within_a_task_of_each(deal(Case(machine, tasks, case.weights)))


def _levels_within_a_task_of_each(outcome: Outcome) -> Iterator[Checked]:
    case = outcome.case
    levels, deltas, counts = outcome.levels(), case.deltas, outcome.counts
    for one, other in permutations(range(len(levels)), 2):
        slack = (deltas[one] + deltas[other]) / case.weights[other]
        yield Checked(counts[other] >= 2, levels[other] <= levels[one] + slack, outcome)


def theorem_7(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that two levels differ by at most one task, without skipping."""
    for number in range(count):
        chance = random.Random(f"seven {number}")
        case = on_machines(never_skipping(chance), chance.randint(1, 6), skips=False)
        outcome = deal(case)
        levels = outcome.levels()
        for one, other in permutations(range(len(levels)), 2):
            task = case.deltas[one] / case.weights[one]
            ahead = levels[one] - levels[other]
            yield Checked(outcome.counts[one] >= 1, ahead <= task, outcome)


def population(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that no client has fewer tasks when another leaves: one machine, without skipping."""
    for number in range(count):
        chance = random.Random(f"population {number}")
        case = unweighted(never_skipping(chance))
        before = deal(case).counts
        leaver = chance.randrange(len(before))
        kept = [client for client in range(len(before)) if client != leaver]
        rest = Case(
            case.machines,
            tuple(case.tasks[client] for client in kept),
            tuple(case.weights[client] for client in kept),
            skips=False,
        )
        after = deal(rest).counts
        pairs = zip(kept, after, strict=True)
        holds = all(new >= before[client] for client, new in pairs)
        yield Checked(before[leaver] > 0, holds, (case, leaver, before, after))


def strategy(deal: Deal, count: int) -> Iterator[Checked]:
    """Check that a false demand gains about a task at most: one machine, without skipping."""
    for number in range(count):
        chance = random.Random(f"strategy {number}")
        machine = tuple(chance.randint(72, 460) for _ in range(2))
        tasks = tuple(
            tuple(chance.randint(1, 5) for _ in range(2)) for _ in range(chance.randint(2, 3))
        )
        case = Case((machine,), tasks, (1,) * len(tasks), skips=False)
        honest = deal(case).counts[0] * case.deltas[0]
        largest = [max(column) for column in zip(*tasks, strict=True)]
        spread = share(largest, machine) + sum(case.deltas)
        level = level_of_continuous(case)
        for _ in range(2):
            lie = tuple(chance.randint(1, 9) for _ in range(2))
            claimed = deal(Case((machine,), (lie, *tasks[1:]), case.weights, skips=False))
            useful = tasks_in(times(claimed.counts[0], lie), tasks[0]) // 1
            slack = share(lie, machine) + level * spread
            gain = useful * case.deltas[0] - honest
            yield Checked(slack < Fraction(1, 4), gain <= slack, (case, lie))
