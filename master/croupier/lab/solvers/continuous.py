"""Flat policies for divisible tasks: exact progressive filling.

All users' shares rise together. A user stops when a resource that it needs is used up or its
backlog is done, and the others continue. (Ghodsi et al., NSDI 2011, sections 4.1, 4.3 and 5.1.) The
policies differ in the price of a task: its cost in the user's share. All numbers are Fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Amounts = tuple[Fraction, ...]


class Undefined(ValueError):
    """The policy is undefined for these users."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with tasks of one kind.

    Attributes:
        demand: the amount of each resource that one task takes.
        weights: the user's weight for each resource; all above 0.
        backlog: the number of tasks; None means without end.
    """

    demand: Amounts
    weights: Amounts
    backlog: Fraction | None = None


def drf(capacity: Amounts, users: Sequence[User]) -> list[Fraction]:
    """Return each user's tasks under (weighted) DRF; raises Undefined if nothing bounds them."""
    return fill(
        capacity, users, [max(_parts(capacity, user), default=Fraction(0)) for user in users]
    )


def asset(capacity: Amounts, users: Sequence[User]) -> list[Fraction]:
    """Return the tasks of each user when the sums of their shares are equal; raises as `drf`."""
    return fill(capacity, users, [sum(_parts(capacity, user), Fraction(0)) for user in users])


def single(capacity: Amounts, users: Sequence[User], resource: int) -> list[Fraction]:
    """Return the tasks of each user when only one resource is shared fairly; raises as `drf`."""
    if capacity[resource] == 0:
        raise Undefined("nothing of the one resource that is shared")
    return fill(
        capacity,
        users,
        [user.demand[resource] / capacity[resource] / user.weights[resource] for user in users],
    )


def fill(capacity: Amounts, users: Sequence[User], prices: Sequence[Fraction]) -> list[Fraction]:
    """Raise the tasks of all users at the rate 1 / price until no user can continue.

    A user whose tasks cost nothing stays behind all others, and is served first. Raises Undefined
    if two users' tasks cost nothing, or nothing bounds a user's tasks.
    """
    tasks = [Fraction(0)] * len(users)
    free = list(capacity)
    unpriced = [
        i
        for i, price in enumerate(prices)
        if price == 0 and _can_continue(users[i], tasks[i], free)
    ]
    if len(unpriced) > 1:
        raise Undefined("the tasks of several users cost nothing of their shares")
    for i in unpriced:
        _rise({i: Fraction(1)}, tasks, free, users)
    active = {i for i, price in enumerate(prices) if price > 0}
    while active := {i for i in active if _can_continue(users[i], tasks[i], free)}:
        _rise({i: 1 / prices[i] for i in sorted(active)}, tasks, free, users)
    return tasks


def _rise(
    rates: dict[int, Fraction], tasks: list[Fraction], free: list[Fraction], users: Sequence[User]
) -> None:
    """Let tasks grow at `rates` until a resource or a backlog is used up."""
    flows = [
        sum((rates[i] * users[i].demand[r] for i in rates), Fraction(0)) for r in range(len(free))
    ]
    ends = [left / flow for left, flow in zip(free, flows, strict=True) if flow > 0]
    for i, rate in rates.items():
        backlog = users[i].backlog
        if backlog is not None:
            ends.append((backlog - tasks[i]) / rate)
    if not ends:
        raise Undefined("nothing bounds a user's tasks")
    for i, rate in rates.items():
        tasks[i] += min(ends) * rate
    for r, flow in enumerate(flows):
        free[r] -= min(ends) * flow


def _can_continue(user: User, tasks: Fraction, free: Sequence[Fraction]) -> bool:
    if user.backlog is not None and tasks >= user.backlog:
        return False
    return all(left > 0 for left, need in zip(free, user.demand, strict=True) if need > 0)


def _parts(capacity: Amounts, user: User) -> list[Fraction]:
    """Return a task's part of each resource over the user's weight for it."""
    return [
        need / total / weight
        for need, total, weight in zip(user.demand, capacity, user.weights, strict=True)
        if total > 0
    ]
