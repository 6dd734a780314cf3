"""Dominant shares, exactly.

A client's dominant share is the largest fraction that it holds of any one resource of
the cluster (Ghodsi et al., NSDI 2011, section 4). Fractions are compared as integers:
with L the least common multiple of all totals, `held * (L / total)` is the share scaled
by L, the same scale for every resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import lcm


class Totals:
    """Totals of the cluster's scalar resources, and the scale of shares.

    When all totals grow or shrink alike, as when an agent joins a uniform cluster,
    the order of shares does not change, and the old scale is kept.

    Attributes:
        amounts: thousandths of each resource's unit; none is 0. A change makes a new mapping.
        factors: by resource, the factor that makes a held amount a share in the present scale. As
            of the last `refresh`.
    """

    __slots__ = ("_scaled", "_touched", "amounts", "factors")

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self._scaled: dict[str, int] = {}
        self._touched = False
        self.factors: dict[str, int] = {}

    def add(self, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Add an agent's resources, or subtract them with `sign` -1."""
        if not scalars:
            return
        amounts = dict(self.amounts)
        for name, milli in scalars.items():
            amounts[name] = amounts.get(name, 0) + sign * milli
        self.amounts = {name: milli for name, milli in amounts.items() if milli}
        self._touched = True

    @property
    def is_stale(self) -> bool:
        """Whether the order of shares may differ from the last `refresh`. O(resources)."""
        if not self._touched:
            return False
        if self.amounts.keys() == self._scaled.keys():
            pairs = [(total, self._scaled[name]) for name, total in self.amounts.items()]
            new, old = pairs[0] if pairs else (1, 1)
            self._touched = any(total * old != before * new for total, before in pairs)
        return self._touched

    @property
    def whole(self) -> int:
        """A share of 1 in the present scale; 1 for an empty cluster."""
        for name, factor in self.factors.items():
            if name in self.amounts:
                return self.amounts[name] * factor
        return 1

    def refresh(self) -> None:
        """Rescale to the changed totals; every key must be computed again after this."""
        scale = lcm(*self.amounts.values()) if self.amounts else 1
        self._scaled = self.amounts
        self.factors = {name: scale // total for name, total in self.amounts.items()}
        self._touched = False

    def shares(self, held: Mapping[str, int]) -> dict[str, int]:
        """Return the share of each resource that the cluster has, in the present scale."""
        factors = self.factors
        return {name: milli * factors[name] for name, milli in held.items() if name in factors}

    def dominant(self, held: Mapping[str, int]) -> int:
        """Return the dominant share of `held`, in the present scale. O(resources held)."""
        factors, share = self.factors, 0
        for name, milli in held.items():
            if name in factors and milli * factors[name] > share:
                share = milli * factors[name]
        return share

    def share(self, held: Mapping[str, int], weights: Mapping[str, int] | None = None) -> Fraction:
        """Return the dominant share of `held`, over weights in thousandths; 1 is the cluster."""
        best = Fraction(0)
        for name, milli in held.items():
            if name in self.amounts:
                weight = weights.get(name, 1000) if weights else 1000
                best = max(best, Fraction(milli * 1000, self.amounts[name] * weight))
        return best


def largest(shares: Mapping[str, int], weights: Mapping[str, int]) -> tuple[int, int]:
    """Return the largest share over the weight of its resource, which is in thousandths.

    It is a fraction: numerator and denominator, not reduced.
    """
    best, over = 0, 1
    for name, share in shares.items():
        weight = weights.get(name, 1000)
        if share * 1000 * over > best * weight:
            best, over = share * 1000, weight
    return best, over
