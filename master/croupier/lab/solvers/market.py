"""CEEI: competitive equilibrium from equal incomes.

Each user gets an equal (or weighted) budget and buys tasks at the prices that clear the market.
By Eisenberg and Gale, this is the x that maximises sum w_i log x_i under A x <= b; prices are
the multipliers p of the constraints: x_i = w_i / (p . A_i), p >= 0, and p_j > 0 only where
resource j is used up. A barrier method in floats finds which constraints bind; Newton's method
in long Fractions then solves for their prices; where the solution has short fractions, it is
found exactly and proved by putting it into the equations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import inf
from typing import TypeVar

from croupier.lab.solvers.continuous import Amounts, Undefined, User

Number = TypeVar("Number", Fraction, float)


def solve(matrix: Sequence[Sequence[Number]], right: Sequence[Number]) -> list[Number] | None:
    """Find x with matrix * x = right; None if the matrix is singular. O(n^3)."""
    size = len(right)
    rows: list[list[Number]] = [list(row) for row in matrix]
    for row, value in zip(rows, right, strict=True):
        row.append(value)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if rows[pivot][column] == 0:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = rows[column][column]
        rows[column] = [value / scale for value in rows[column]]
        for r in range(size):
            factor = rows[r][column]
            if r != column and factor:
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return [row[size] for row in rows]


_DIGITS = 10**40
_CLOSE = Fraction(1, 10**30)
_SHORT = 10**9
_MAX_NEARLY_BOUND = 12


def ceei(capacity: Amounts, users: Sequence[User]) -> list[Fraction]:
    """Return the tasks of each user, to 1e-15, and exact where they are short fractions.

    A finite backlog is one more constraint. Weights must not differ by resource. Raises Undefined
    if nothing bounds a user's tasks, or weights differ by resource.
    """
    if any(len(set(user.weights)) > 1 for user in users):
        raise Undefined("a market gives each user one budget, not one per resource")
    tasks = [Fraction(0)] * len(users)
    served = [i for i, user in enumerate(users) if _can_run(capacity, user)]
    if not served:
        return tasks
    market = _Market(capacity, [users[i] for i in served])
    for i, amount in zip(served, market.clear(), strict=True):
        tasks[i] = amount
    return tasks


def _can_run(capacity: Amounts, user: User) -> bool:
    if user.backlog == 0:
        return False
    return all(total > 0 for need, total in zip(user.demand, capacity, strict=True) if need > 0)


class _Market:
    """Constraints with right side 1, in units in which no user can have more than 1."""

    def __init__(self, capacity: Amounts, users: Sequence[User]) -> None:
        budget = sum(user.weights[0] for user in users)
        self._weights = [user.weights[0] / budget for user in users]
        rows = [
            [user.demand[r] / total for user in users]
            for r, total in enumerate(capacity)
            if any(user.demand[r] for user in users)
        ]
        for i, user in enumerate(users):
            if user.backlog is not None:
                rows.append([Fraction(k == i) / user.backlog for k in range(len(users))])
        most = [max((row[i] for row in rows), default=Fraction(0)) for i in range(len(users))]
        if any(largest == 0 for largest in most):
            raise Undefined("nothing bounds a user's tasks")
        self._unit = [1 / largest for largest in most]
        scaled = [[a * unit for a, unit in zip(row, self._unit, strict=True)] for row in rows]
        self._rows = [row for k, row in enumerate(scaled) if row not in scaled[:k]]

    def clear(self) -> list[Fraction]:
        rough, prices = self._barrier()
        for bound in self._guesses(rough, prices):
            exact = self._newton(bound, [prices[j] for j in bound])
            if exact is not None and self._is_feasible(exact):
                return [x * unit for x, unit in zip(exact, self._unit, strict=True)]
        return [Fraction(x) * unit for x, unit in zip(rough, self._unit, strict=True)]

    def _barrier(self) -> tuple[list[float], list[float]]:
        """Return a point near the optimum, and approximate prices."""
        rows = [[float(a) for a in row] for row in self._rows]
        weights = [float(w) for w in self._weights]
        x = [0.5 / len(weights)] * len(weights)
        step = 1.0
        while step > 1e-13:
            for _ in range(50):
                if _descend(rows, weights, step, x) < 1e-9:
                    break
            step *= 0.2
        slacks = _slacks(rows, x)
        return x, [step / 0.2 / slack for slack in slacks]

    def _guesses(self, x: list[float], prices: list[float]) -> Iterator[tuple[int, ...]]:
        """Yield sets of constraints that may bind: clear ones always, doubtful ones in all ways."""
        slacks = _slacks([[float(a) for a in row] for row in self._rows], x)
        ratios = {j: prices[j] / slacks[j] for j in range(len(prices))}
        sure = tuple(j for j, ratio in ratios.items() if ratio > 1e4)
        maybe = sorted(
            (j for j, ratio in ratios.items() if 1e-4 < ratio <= 1e4), key=ratios.__getitem__
        )
        maybe = maybe[-_MAX_NEARLY_BOUND:]
        yield from _subsets(sure, maybe)
        # More constraints may bind than there are users: then some of them suffice.
        every = tuple(j for j, ratio in ratios.items() if ratio > 1e-4)[:_MAX_NEARLY_BOUND]
        for size in range(min(len(every), len(x)), 0, -1):
            yield from combinations(every, size)

    def _newton(self, bound: tuple[int, ...], prices: list[float]) -> list[Fraction] | None:
        """Return x if exactly the constraints `bound` have prices; None if there is none."""
        p = [Fraction(price).limit_denominator(_DIGITS) for price in prices]
        for _ in range(60):
            x = self._bought(bound, p)
            if x is None:
                return None
            excess = [self._used(j, x) - 1 for j in bound]
            if max(map(abs, excess), default=Fraction(0)) < _CLOSE:
                break
            slope = [
                [
                    sum(
                        self._rows[j][i] * self._rows[k][i] * x[i] * x[i] / w
                        for i, w in enumerate(self._weights)
                    )
                    for k in bound
                ]
                for j in bound
            ]
            change = solve([[Fraction(v) for v in row] for row in slope], excess)
            if change is None:
                return None
            p = [(a + d).limit_denominator(_DIGITS) for a, d in zip(p, change, strict=True)]
        else:
            return None
        if any(price < -_CLOSE for price in p):
            return None
        return self._shortened(bound, p) or x

    def _shortened(self, bound: tuple[int, ...], p: list[Fraction]) -> list[Fraction] | None:
        """Return the exact solution if prices are short fractions; the equations prove it."""
        short = [price.limit_denominator(_SHORT) for price in p]
        x = self._bought(bound, short)
        if x is None or any(self._used(j, x) != 1 for j in bound):
            return None
        return x if min(short, default=Fraction(0)) >= 0 else None

    def _bought(self, bound: tuple[int, ...], p: list[Fraction]) -> list[Fraction] | None:
        costs = [
            sum((price * self._rows[j][i] for j, price in zip(bound, p, strict=True)), Fraction(0))
            for i in range(len(self._weights))
        ]
        if any(cost <= 0 for cost in costs):
            return None
        return [
            (w / cost).limit_denominator(_DIGITS * _DIGITS)
            for w, cost in zip(self._weights, costs, strict=True)
        ]

    def _used(self, j: int, x: Sequence[Fraction]) -> Fraction:
        return sum((a * b for a, b in zip(self._rows[j], x, strict=True)), Fraction(0))

    def _is_feasible(self, x: Sequence[Fraction]) -> bool:
        return all(self._used(j, x) <= 1 + _CLOSE * 10 for j in range(len(self._rows)))


def _subsets(sure: tuple[int, ...], maybe: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(maybe) + 1):
        for some in combinations(maybe, size):
            yield tuple(sorted((*sure, *some)))


def _slacks(rows: Sequence[Sequence[float]], x: Sequence[float]) -> list[float]:
    return [1 - sum(a * b for a, b in zip(row, x, strict=True)) for row in rows]


def _descend(
    rows: Sequence[Sequence[float]], weights: Sequence[float], step: float, x: list[float]
) -> float:
    """Take a Newton step on sum w log x + step * sum log slack, in place; return the decrement."""
    size = len(x)
    slacks = _slacks(rows, x)
    gradient = [
        w / xi - step * sum(row[i] / s for row, s in zip(rows, slacks, strict=True))
        for i, (w, xi) in enumerate(zip(weights, x, strict=True))
    ]
    hessian = [
        [
            step * sum(row[i] * row[k] / s / s for row, s in zip(rows, slacks, strict=True))
            + (weights[i] / x[i] / x[i] if i == k else 0.0)
            for k in range(size)
        ]
        for i in range(size)
    ]
    move = solve(hessian, gradient)
    assert move is not None, "the Hessian is positive definite"
    decrement = sum(g * d for g, d in zip(gradient, move, strict=True))
    moved = [sum(a * d for a, d in zip(row, move, strict=True)) for row in rows]
    length = min(
        1.0,
        min((-0.95 * xi / d for xi, d in zip(x, move, strict=True) if d < 0), default=inf),
        min((0.95 * s / u for s, u in zip(slacks, moved, strict=True) if u > 0), default=inf),
    )
    for i in range(size):
        x[i] += length * move[i]
    return decrement / step
