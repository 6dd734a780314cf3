"""First come, first served: each user's tasks leave the most room for the next user.

The first user gets as many tasks as it can, then the second, and so on. Dynamic programming over
machines finds which numbers of tasks of all users fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.lab.solvers.continuous import Undefined, User
from croupier.lab.solvers.filling import Machines

_MAX_STATES = 3_000_000
_MAX_WAYS = 3_000

# The tasks of all users but the last on each machine of a list; links share their beginnings.
_Link = tuple["_Link | None", tuple[int, ...]]
_Reachable = dict[tuple[int, ...], tuple[int, _Link | None]]


@dataclass(frozen=True, slots=True)
class Placed:
    """The best placement.

    Attributes:
        counts: tasks of each user.
        placed: tasks of each user but the last, by machine.
    """

    counts: list[int]
    placed: list[tuple[int, ...]]


def place_best(machines: Machines, users: Sequence[User]) -> Placed:
    """Search the best placement; raises Undefined if there are too many, or tasks without end."""
    if any(user.backlog is None and not any(user.demand) for user in users):
        raise Undefined("nothing bounds a user's tasks")
    # Tasks of the last user, and how the others were placed, by the tasks of the others.
    reachable: _Reachable = {(0,) * (len(users) - 1): (0, None)}
    order = sorted(range(len(machines.free)), key=machines.free.__getitem__)
    known: dict[tuple[Fraction, ...], dict[tuple[int, ...], int]] = {}
    work = 0
    for index in order:
        free = tuple(machines.free[index])
        if free not in known:
            known[free] = _ways(free, users)
        ways = known[free]
        work += len(reachable) * len(ways)
        if work > _MAX_STATES:
            raise Undefined("too many ways to put the tasks to find the best")
        reachable = _one_more(reachable, ways, users)
    first, (last, link) = max(reachable.items(), key=lambda item: (item[0], item[1][0]))
    return Placed([*first, last], _placed(link, order, first))


def _placed(
    link: _Link | None, order: Sequence[int], counts: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return tasks by machine. A way may hold more than a user's backlog; cut it there."""
    placed = [(0,) * len(counts)] * len(order)
    missing = list(counts)
    for index in reversed(order):
        assert link is not None
        link, way = link
        placed[index] = tuple(map(min, way, missing))
        missing = [rest - taken for rest, taken in zip(missing, placed[index], strict=True)]
    return placed


def _one_more(
    reachable: _Reachable, ways: dict[tuple[int, ...], int], users: Sequence[User]
) -> _Reachable:
    """Return the reachable placements with one more machine, used in one of `ways`."""
    found: _Reachable = {}
    for before, (last, link) in reachable.items():
        for way, more in ways.items():
            counts = tuple(
                _bounded(a + b, user) for a, b, user in zip(before, way, users, strict=False)
            )
            total = _bounded(last + more, users[-1])
            if counts not in found or found[counts][0] < total:
                found[counts] = total, (link, way)
    return found


def _ways(free: Sequence[Fraction], users: Sequence[User]) -> dict[tuple[int, ...], int]:
    """Return the undominated ways to use a machine: tasks of each user, the most of the last."""
    ways: dict[tuple[int, ...], int] = {}

    def extend(counts: tuple[int, ...], rest: Sequence[Fraction]) -> None:
        user = users[len(counts)]
        most = _most(rest, user)
        if len(counts) == len(users) - 1:
            ways[counts] = most
            return
        if len(ways) > _MAX_WAYS:
            raise Undefined("too many ways to put the tasks to find the best")
        for count in range(most + 1):
            less = [r - count * need for r, need in zip(rest, user.demand, strict=True)]
            extend((*counts, count), less)

    extend((), free)
    return {
        counts: last
        for counts, last in ways.items()
        if not any(_is_better((*more, ways[more]), (*counts, last)) for more in ways)
    }


def _is_better(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _most(free: Sequence[Fraction], user: User) -> int:
    fitting = [f // need for f, need in zip(free, user.demand, strict=True) if need > 0]
    if user.backlog is not None:
        fitting.append(int(user.backlog))
    return min(fitting)


def _bounded(count: int, user: User) -> int:
    return count if user.backlog is None else min(count, int(user.backlog))
