"""How far the past use of a role changes its weight: its factor.

Of the roles right below one parent, let

    u = a role's decayed use: of its dominant resource, as a part of the cluster meanwhile
    s = its share by weight: its weight over the weights of all of them
    d = what the parent was due: the product of the shares s on the path to it; 1 at the top
    p = (u + s * max(0, d - sum of u)) / max(d, sum of u)

Then p is the role's part of the past, and the factor is s / p, at least 1/4 and at most 4. So

- a role that used its share has the factor 1, whatever resources it and its siblings need;
- what none of them used counts as divided by weight, and so does the time before the first record.
  So use of a cluster that was mostly idle changes little, and without a past the factor is 1.

Only the weight changes. The allocator orders by share over weight, as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from croupier.model.roles import EVEN, HIGHEST_FACTOR, LOWEST_FACTOR

# Decayed use, shares and what a parent was due are in parts of it; see `PastUse` for the answer.
WHOLE: Final = 1 << 32
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PastUse:
    """The past of a role beside its siblings'.

    Attributes:
        part_ppm: p, its part of the past, in millionths.
        share_ppm: s, its share by weight, in millionths.
        factor: thousandths by which its weight counts.
    """

    part_ppm: int
    share_ppm: int
    factor: int


def compare(weight: int, used: int, siblings: Sequence[tuple[int, int]], due: int) -> PastUse:
    """Compare a role's part of the past with its share.

    `siblings` are the weight and the decayed use of each, the role included, in any order. Uses
    and `due` are in parts of `WHOLE`. The factor is rounded to thousandths.
    """
    weights = sum(each for each, _ in siblings)
    in_all = sum(each for _, each in siblings)
    whole, idle = max(due, in_all, 1), max(due - in_all, 0)
    # p is this over whole * weights.
    past = used * weights + idle * weight
    factor = HIGHEST_FACTOR
    if past:
        factor = (2 * EVEN * weight * whole + past) // (2 * past)
    return PastUse(
        past * _MILLION // (whole * weights),
        weight * _MILLION // weights,
        min(max(factor, LOWEST_FACTOR), HIGHEST_FACTOR),
    )


def counted_weight(weight: int, factor: int) -> int:
    """Return a weight by a factor, both in thousandths; rounded, and at least one thousandth."""
    return max(1, (weight * factor + EVEN // 2) // EVEN)
