"""The properties of fair division: each looks for a counterexample on one instance.

Tasks are divisible and users need some of every resource, as in section 3 of the DRF paper. A
policy is a function from a capacity and users to tasks. A property returns a counterexample as
text, or None. The slack allows for policies whose numbers are not exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.lab.solvers.continuous import Amounts, User

SLACK = Fraction(1, 10**9)
LIES = 6


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster, and the amounts of one task of each user."""

    capacity: Amounts
    demands: tuple[Amounts, ...]

    def __str__(self) -> str:
        users = " ".join(_vector(demand) for demand in self.demands)
        return f"cluster {_vector(self.capacity)}, tasks {users}"

    def tasks(self, policy: Policy) -> Sequence[Fraction]:
        """Return the tasks of each user under a policy; all users have the same weight."""
        equal = (Fraction(1),) * len(self.capacity)
        return policy(self.capacity, [User(demand, equal) for demand in self.demands])

    def without(self, user: int) -> Instance:
        """Return the instance without a user."""
        return Instance(self.capacity, (*self.demands[:user], *self.demands[user + 1 :]))

    def claiming(self, user: int, lie: Amounts) -> Instance:
        """Return the instance in which a user claims to need `lie`."""
        return Instance(self.capacity, (*self.demands[:user], lie, *self.demands[user + 1 :]))

    def grown(self, resource: int, factor: Fraction) -> Instance:
        """Return the instance with `factor` times the amount of a resource."""
        capacity = list(self.capacity)
        capacity[resource] *= factor
        return Instance(tuple(capacity), self.demands)


Policy = Callable[[Amounts, Sequence[User]], Sequence[Fraction]]
Property = Callable[[Policy, Instance, random.Random], str | None]


def tasks_within(bundle: Sequence[Fraction], demand: Amounts) -> Fraction:
    """Return the number of tasks of `demand` that a bundle holds."""
    return min(b / d for b, d in zip(bundle, demand, strict=True) if d > 0)


def has_sharing_incentive(policy: Policy, instance: Instance, _: random.Random) -> str | None:
    """Check sharing incentive: no user would have more with an equal part of each resource."""
    tasks = instance.tasks(policy)
    part = [total / len(tasks) for total in instance.capacity]
    for user, demand in enumerate(instance.demands):
        alone = tasks_within(part, demand)
        if tasks[user] < alone - SLACK:
            return f"user {user + 1} runs {short(tasks[user])}, alone {short(alone)}"
    return None


def is_strategy_proof(policy: Policy, instance: Instance, chance: random.Random) -> str | None:
    """Check strategy-proofness: no user runs more true tasks by a false claim."""
    honest = instance.tasks(policy)
    for _ in range(LIES):
        user = chance.randrange(len(honest))
        truth = instance.demands[user]
        lie = tuple(
            need * Fraction(chance.choice((1, 1, 2, 3, 8)), chance.choice((1, 1, 1, 2)))
            for need in truth
        )
        found = tasks_by_lie(policy, instance, user, lie)
        if found > honest[user] + SLACK:
            return (
                f"user {user + 1} runs {short(honest[user])},"
                f" and {short(found)} by claiming {_vector(lie)}"
            )
    return None


def tasks_by_lie(policy: Policy, instance: Instance, user: int, lie: Amounts) -> Fraction:
    """Return the number of true tasks that the user runs when it claims `lie`."""
    tasks = instance.claiming(user, lie).tasks(policy)[user]
    return tasks_within([tasks * need for need in lie], instance.demands[user])


def is_envy_free(policy: Policy, instance: Instance, _: random.Random) -> str | None:
    """Check envy-freeness: no user would run more tasks with another's bundle."""
    tasks = instance.tasks(policy)
    for one, demand in enumerate(instance.demands):
        for other, bundle in enumerate(instance.demands):
            there = tasks_within([tasks[other] * need for need in bundle], demand)
            if there > tasks[one] + SLACK:
                return f"user {one + 1} runs {short(tasks[one])}, with {other + 1}'s {short(there)}"
    return None


def is_efficient(policy: Policy, instance: Instance, _: random.Random) -> str | None:
    """Check Pareto efficiency: no user could have more unless another had less."""
    tasks = instance.tasks(policy)
    for user, demand in enumerate(instance.demands):
        left = [
            total - sum(x * d[r] for x, d in zip(tasks, instance.demands, strict=True))
            for r, total in enumerate(instance.capacity)
        ]
        if all(
            rest > SLACK * total
            for rest, total, d in zip(left, instance.capacity, demand, strict=True)
            if d
        ):
            return f"user {user + 1} could have more"
    return None


def is_fair_in_one(policy: Policy, instance: Instance, _: random.Random) -> str | None:
    """Check single resource fairness: all users have the same amount of a single resource."""
    one = Instance(instance.capacity[:1], tuple(demand[:1] for demand in instance.demands))
    return _is_even(one.tasks(policy), one)


def is_fair_in_bottleneck(policy: Policy, instance: Instance, _: random.Random) -> str | None:
    """Check bottleneck fairness: all users have as much of a resource that is dominant for all."""
    demands = []
    for demand in instance.demands:
        most = max(d / total for d, total in zip(demand, instance.capacity, strict=True))
        demands.append((most * instance.capacity[0], *demand[1:]))
    common = Instance(instance.capacity, tuple(demands))
    found = _is_even(common.tasks(policy), common)
    return None if found is None else f"{found}; {common}"


def is_monotone_in_population(policy: Policy, instance: Instance, _: random.Random) -> str | None:
    """Check population monotonicity: when a user leaves, no other user has less."""
    before = instance.tasks(policy)
    for leaver in range(len(before)):
        rest = [x for user, x in enumerate(before) if user != leaver]
        after = instance.without(leaver).tasks(policy) if rest else []
        for old, new in zip(rest, after, strict=True):
            if new < old - SLACK:
                change = f"from {short(old)} to {short(new)}"
                return f"user {leaver + 1} leaves, and another goes {change}"
    return None


def is_monotone_in_resources(
    policy: Policy, instance: Instance, chance: random.Random
) -> str | None:
    """Check resource monotonicity: with more of a resource, no user has less."""
    before = instance.tasks(policy)
    resource = chance.randrange(len(instance.capacity))
    factor = Fraction(chance.choice((2, 4)))
    after = instance.grown(resource, factor).tasks(policy)
    for user, (old, new) in enumerate(zip(before, after, strict=True)):
        if new < old - SLACK:
            return (
                f"with {factor} times resource {resource + 1},"
                f" user {user + 1} goes from {short(old)} to {short(new)}"
            )
    return None


def generate(chance: random.Random) -> Instance:
    """Return an instance of two to four users that need each of two or three resources."""
    width = chance.choice((2, 2, 3))
    capacity = tuple(Fraction(chance.choice((10, 20, 30, 50, 100))) for _ in range(width))
    users = chance.choice((2, 2, 3, 3, 4))
    largest = chance.choice((4, 9, 16))
    demands = tuple(
        tuple(Fraction(chance.randint(1, largest)) for _ in range(width)) for _ in range(users)
    )
    return Instance(capacity, demands)


def _is_even(tasks: Sequence[Fraction], instance: Instance) -> str | None:
    parts = [x * demand[0] for x, demand in zip(tasks, instance.demands, strict=True)]
    even = instance.capacity[0] / len(parts)
    for user, part in enumerate(parts):
        if abs(part - even) > SLACK * even:
            whole = short(instance.capacity[0])
            return f"user {user + 1} has {short(part)} of {whole}, not {short(even)}"
    return None


def _vector(amounts: Sequence[Fraction]) -> str:
    return "<" + ", ".join(str(amount) for amount in amounts) + ">"


def short(amount: Fraction) -> str:
    """Return an amount as text: short fractions as they are, others as decimals."""
    return str(amount) if amount.denominator < 10_000 else f"{float(amount):.6g}"
