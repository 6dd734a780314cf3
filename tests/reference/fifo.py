"""First come, first served: the next client only when the one before has nothing that fits.

How much the later clients get depends on where the tasks of the first were placed:

- `first-fit`: each task on the first machine with room.
- `spread`: each on the machine that is used least for its size.
- `best`: see `best_placement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from croupier.lab.solvers.best_placement import check_bounded, place_best
from croupier.lab.solvers.continuous import Amounts, User
from croupier.lab.solvers.filling import Machines


def serve_in_order(machines: Machines, users: Sequence[User], placement: str) -> list[int]:
    """Serve one user after the other; return the number of tasks of each.

    Raises:
        Undefined: if a user's tasks take nothing and never end, or there are too many
            placements to try.
    """
    check_bounded(users)
    if placement == "best":
        return place_best(machines, users).counts
    return [_serve(machines, user, placement) for user in users]


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
    """Return the machine with room whose most used resource is used least."""
    used = {
        index: max(
            (1 - f / size for f, size in zip(free, sizes[index], strict=True) if size),
            default=Fraction(0),
        )
        for index, free in enumerate(machines.free)
        if machines.fits(index, demand)
    }
    return min(used, key=used.__getitem__, default=None)
