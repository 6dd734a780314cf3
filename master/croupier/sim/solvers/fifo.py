"""First come, first served: the next client only when the one before has nothing that fits.

How much the later ones get depends on where the first one's tasks were put:

- `first-fit`: each task on the first machine with room.
- `spread`: each on the machine that is used least for its size.
- `best`: so that the second client can have most, then the third, and so on. Found by going
  through what all machines together could hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.sim.solvers.continuous import Amounts, Undefined, User
from croupier.sim.solvers.filling import Machines

PLACEMENTS = ("best", "first-fit", "spread")
_MAX_STATES = 3_000_000
_MAX_WAYS = 3_000


# The tasks of all users but the last on each machine of a list; links share their beginnings.
_Link = tuple["_Link | None", tuple[int, ...]]


_Reachable = dict[tuple[int, ...], tuple[int, _Link | None]]


@dataclass(frozen=True, slots=True)
class Served:
    """What came of it.

    Attributes:
        counts: tasks of each user.
        lefts: the amounts that are left of each resource after each user.
        placed: tasks of each user but the last, by machine; only for the placement `best`.
    """

    counts: list[int]
    lefts: list[list[Fraction]]
    placed: list[tuple[int, ...]]


def serve_in_order(machines: Machines, users: Sequence[User], placement: str) -> Served:
    """Serve one user after the other.

    Raises:
        Undefined: if a user's tasks take nothing and never end, or there are too many ways
            to put tasks to find the best.
    """
    if any(user.backlog is None and not any(user.demand) for user in users):
        raise Undefined("nothing bounds a user's tasks")
    if placement == "best":
        return _serve_best(machines, users)
    counts, lefts = [], []
    for user in users:
        counts.append(_serve(machines, user, placement))
        lefts.append(machines.left())
    return Served(counts, lefts, [])


def _serve(machines: Machines, user: User, placement: str) -> int:
    sizes = [tuple(free) for free in machines.free]
    count = 0
    while user.backlog is None or count < user.backlog:
        if placement == "first-fit":
            index = machines.first_fit(user.demand)
        else:
            index = _least_used(machines, sizes, user.demand)
        if index is None:
            break
        machines.take(index, user.demand)
        count += 1
    return count


def _least_used(machines: Machines, sizes: Sequence[Amounts], demand: Amounts) -> int | None:
    """The machine with room whose most used resource is used least."""
    used = {
        index: max(
            (1 - f / size for f, size in zip(free, sizes[index], strict=True) if size),
            default=Fraction(0),
        )
        for index, free in enumerate(machines.free)
        if machines.fits(index, demand)
    }
    return min(used, key=used.__getitem__, default=None)


def _serve_best(machines: Machines, users: Sequence[User]) -> Served:
    """Dynamic programming over machines: which numbers of tasks of all users fit together."""
    left = machines.left()
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
    counts = [*first, last]
    lefts = []
    for user, count in zip(users, counts, strict=True):
        left = [amount - count * need for amount, need in zip(left, user.demand, strict=True)]
        lefts.append(left)
    return Served(counts, lefts, _placed(link, order, first))


def _placed(
    link: _Link | None, order: Sequence[int], counts: Sequence[int]
) -> list[tuple[int, ...]]:
    """Tasks by machine. A way may hold more than a user's backlog: the rest is left out."""
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
    """What is reachable with one more machine, which can be used in these `ways`."""
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
    """Ways to use a machine: numbers of tasks of all users but the last, and most of the last.

    Without those that give nobody more and somebody less than another way.
    """
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
