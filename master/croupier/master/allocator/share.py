"""Dominant shares, exactly.

A client's dominant share is the largest fraction that it holds of any one resource of
the cluster (Ghodsi et al., NSDI 2011, section 4). Fractions are compared as integers:
with L the least common multiple of all totals, `held * (L / total)` is the share scaled
by L, the same scale for every resource. Divided by a weight it is floored after a shift
large enough that different quotients stay different and equal ones stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm

# Weights are integers of thousandths up to MAX_WEIGHT. Two unequal quotients of such
# weights differ by at least 1 / MAX_WEIGHT**2, so a shift by twice its bits keeps order.
MAX_WEIGHT = 1_000_000_000
_SHIFT = 2 * MAX_WEIGHT.bit_length()


class Totals:
    """What the whole cluster has of each scalar resource, and the scale of shares.

    Attributes:
        scale: the number that stands for a share of 1.
    """

    __slots__ = ("_amounts", "_factors", "_stale", "scale")

    def __init__(self) -> None:
        """Begin with a cluster of nothing."""
        self._amounts: dict[str, int] = {}
        self._factors: dict[str, int] = {}
        self._stale = False
        self.scale = 1

    @property
    def amounts(self) -> Mapping[str, int]:
        """Thousandths of each resource's unit; none is 0."""
        return self._amounts

    @property
    def is_stale(self) -> bool:
        """Whether totals have changed since `refresh`: all shares are out of date."""
        return self._stale

    def add(self, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Add an agent's resources, or take them away with `sign` -1."""
        for name, milli in scalars.items():
            total = self._amounts.get(name, 0) + sign * milli
            if total:
                self._amounts[name] = total
            else:
                del self._amounts[name]
            self._stale = True

    def refresh(self) -> None:
        """Take the changed totals into the scale; every key must be made anew after this."""
        self.scale = lcm(*self._amounts.values()) if self._amounts else 1
        self._factors = {name: self.scale // total for name, total in self._amounts.items()}
        self._stale = False

    def dominant(self, held: Mapping[str, int]) -> int:
        """The dominant share of `held`, times `scale`. O(number of resources)."""
        factors = self._factors
        share = 0
        for name, milli in held.items():
            scaled = milli * factors.get(name, 0)
            if scaled > share:
                share = scaled
        return share


def weighted(share: int, weight: int) -> int:
    """A key that orders shares over weights, exactly; both from this module's scales."""
    return (share << _SHIFT) // weight
