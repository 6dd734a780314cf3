"""The solvers, by certificates that only a correct answer has."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest

from croupier.lab.solvers import continuous
from croupier.lab.solvers.best_placement import place_best
from croupier.lab.solvers.continuous import Amounts, Undefined, User
from croupier.lab.solvers.filling import Machines
from croupier.lab.solvers.market import ceei, solve
from tests.harness.effort import portion

Problem = tuple[Amounts, list[User]]


def problem(number: int, *, by_resource: bool = True) -> Problem:
    chance = random.Random(number)
    width = chance.randint(1, 3)
    capacity = tuple(Fraction(chance.randint(5, 40)) for _ in range(width))
    users = []
    for _ in range(chance.randint(1, 5)):
        demand = [Fraction(chance.randint(0, 6)) for _ in range(width)]
        if not any(demand):
            demand[0] = Fraction(1)
        weight = Fraction(chance.choice((1, 1, 2, 5)))
        weights = (weight,) * width
        if by_resource and chance.random() < 0.3:
            weights = tuple(Fraction(chance.randint(1, 4), 3) for _ in range(width))
        backlog = Fraction(chance.randint(0, 20), 2) if chance.random() < 0.25 else None
        users.append(User(tuple(demand), weights, backlog))
    return capacity, users


def user(*demand: int) -> User:
    return User(tuple(Fraction(need) for need in demand), (Fraction(1),) * len(demand))


def used(users: Sequence[User], tasks: Sequence[Fraction], resource: int) -> Fraction:
    each = zip(users, tasks, strict=True)
    return sum((x * user.demand[resource] for user, x in each), Fraction(0))


@pytest.mark.parametrize("policy", ["drf", "asset"])
def test_filling_is_max_min(policy: str) -> None:
    """An unsatisfied user needs a full resource that no user with a larger share needs."""
    for number in range(300):
        capacity, users = problem(number)
        tasks = (continuous.drf if policy == "drf" else continuous.asset)(capacity, users)
        join = max if policy == "drf" else sum
        levels = [
            x * join(n / c / w for n, c, w in zip(u.demand, capacity, u.weights, strict=True))
            for u, x in zip(users, tasks, strict=True)
        ]
        full = [used(users, tasks, r) == total for r, total in enumerate(capacity)]
        assert all(used(users, tasks, r) <= total for r, total in enumerate(capacity))
        for i, user in enumerate(users):
            if user.backlog is not None and tasks[i] == user.backlog:
                continue
            assert any(
                is_full
                and user.demand[r]
                and all(levels[k] <= levels[i] for k, u in enumerate(users) if u.demand[r])
                for r, is_full in enumerate(full)
            ), (number, tasks)


def test_one_resource_is_shared_evenly_regardless_of_other_resources() -> None:
    users = [user(1, 3), user(2, 1)]
    tasks = continuous.single((Fraction(100), Fraction(8)), users, 1)
    assert tasks == [Fraction(4, 3), 4]


def test_undefined_problems_are_refused() -> None:
    one = (Fraction(1),)
    with pytest.raises(Undefined, match="nothing bounds"):
        continuous.drf((Fraction(5),), [User((Fraction(0),), one)])
    free = User((Fraction(0), Fraction(1)), one * 2)
    with pytest.raises(Undefined, match="cost nothing"):
        continuous.single((Fraction(5), Fraction(5)), [free, free], 0)
    with pytest.raises(Undefined, match="one budget"):
        ceei((Fraction(5),) * 2, [User(one * 2, (Fraction(1), Fraction(2)))])
    with pytest.raises(Undefined, match="nothing bounds"):
        ceei((Fraction(5),), [User((Fraction(0),), one)])


def test_continuous_drf_is_strategy_proof_for_every_lie_of_a_grid() -> None:
    for number in range(40):
        chance = random.Random(number)
        capacity = (Fraction(chance.randint(20, 60)), Fraction(chance.randint(20, 60)))
        ones = (Fraction(1),) * 2
        needs = [(chance.randint(1, 5), chance.randint(1, 5)) for _ in range(chance.randint(2, 3))]
        users = [User((Fraction(a), Fraction(b)), ones) for a, b in needs]
        honest = continuous.drf(capacity, users)[0]
        for lie in product(range(1, 8), repeat=2):
            liar = User((Fraction(lie[0]), Fraction(lie[1])), ones)
            got = continuous.drf(capacity, [liar, *users[1:]])[0]
            useful = min(got * x / truth for x, truth in zip(lie, needs[0], strict=True))
            assert useful <= honest


def test_the_market_clears() -> None:
    """No feasible point is better to first order: sum w y / x <= sum w for every feasible y."""
    for number in range(portion(120)):
        capacity, users = problem(number, by_resource=False)
        users = [user for user in users if user.backlog != 0]
        tasks = ceei(capacity, users)
        for r, total in enumerate(capacity):
            assert used(users, tasks, r) <= total * (1 + Fraction(1, 10**12))
        money = sum(user.weights[0] for user in users)
        chance = random.Random(number)
        for _ in range(20):
            other = [Fraction(chance.randint(0, 9)) for _ in users]
            needs = [(total, used(users, other, r)) for r, total in enumerate(capacity)]
            bounds = [total / need for total, need in needs if need]
            bounds += [u.backlog / y for u, y in zip(users, other, strict=True) if u.backlog and y]
            if not bounds:
                continue
            scale = min(bounds)
            each = zip(users, other, tasks, strict=True)
            worth = sum((u.weights[0] * y * scale / x for u, y, x in each), Fraction(0))
            assert worth <= money * (1 + Fraction(1, 10**9)), number


def test_the_market_is_exact_where_fractions_are_short() -> None:
    assert ceei((Fraction(100),) * 2, [user(16, 1), user(1, 2)]) == [
        Fraction(100, 31),
        Fraction(1500, 31),
    ]


def test_the_market_accepts_redundant_resources() -> None:
    """With redundant resources, the numbers of tasks are unique and the prices are not."""
    twice = ceei((Fraction(12), Fraction(12), Fraction(100)), [user(1, 1, 2), user(3, 3, 2)])
    assert twice == [6, 2]


def test_best_placement_of_small_clusters_is_best() -> None:
    """Compare with every placement of the first client's tasks."""
    for number in range(40):
        chance = random.Random(number)
        machines = [
            [Fraction(chance.randint(2, 7)), Fraction(chance.randint(2, 7))] for _ in range(3)
        ]
        ones = (Fraction(1),) * 2
        users = [
            User(
                (Fraction(chance.randint(1, 3)), Fraction(chance.randint(1, 3))),
                ones,
                Fraction(chance.randint(1, 4)),
            )
            for _ in range(2)
        ]
        counts = place_best(Machines(machines), users).counts
        assert tuple(counts) == best_by_trying(machines, users)


def best_by_trying(machines: list[list[Fraction]], users: list[User]) -> tuple[int, int]:
    def fitting(free: Sequence[Fraction], user: User) -> int:
        return min(f // n for f, n in zip(free, user.demand, strict=True))

    best = (0, 0)
    ranges = [range(fitting(machine, users[0]) + 1) for machine in machines]
    for way in product(*ranges):
        if sum(way) > (users[0].backlog or 0):
            continue
        second = 0
        for machine, count in zip(machines, way, strict=True):
            rest = [f - count * n for f, n in zip(machine, users[0].demand, strict=True)]
            second += fitting(rest, users[1])
        best = max(best, (sum(way), min(second, int(users[1].backlog or 0))))
    return best


def test_singular_equations_have_no_solution() -> None:
    one, two = Fraction(1), Fraction(2)
    assert solve([[one, two], [two, 2 * two]], [one, one]) is None
    assert solve([[Fraction(0), one], [two, one]], [one, two]) == [Fraction(1, 2), 1]
