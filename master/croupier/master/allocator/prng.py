"""Pseudo-random numbers that are the same for the same seed on every machine."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class SplitMix64:
    """The generator splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def draw(self) -> float:
        """Return a number above 0 and below 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
        # 53 bits and a half, so that neither end is reached.
        return ((mixed >> 11) + 0.5) / (1 << 53)
