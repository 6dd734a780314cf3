"""The names that get series of their own: those with the highest scores, without flapping.

A name that comes in stays for `MIN_STAY_S`. After that another name takes its place only with a
score that is higher by half. So two names with about the same score do not alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import nlargest

# Scores are compared again after this time, and at once while there is room.
RANK_AGAIN_S = 60.0
MIN_STAY_S = 600.0
BONUS = 1.5
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Score:
    """How much a name matters.

    Attributes:
        is_pinned: it comes before all names that are not.
    """

    amount: float
    is_pinned: bool = False


class TopNames:
    """At most `most` names, chosen by their scores.

    Attributes:
        names: the present choice, the highest score first.
    """

    def __init__(self, most: int) -> None:
        self.names: tuple[str, ...] = ()
        self._most = most
        self._entered: dict[str, float] = {}
        self._due = 0.0

    def update(self, scores: Callable[[], Mapping[str, Score]], now: float) -> None:
        """Choose again if that is due; `scores` is called then only. O(names), else O(1).

        A name that equals `OTHER` is never chosen: it would be mistaken for the rest.
        """
        if now < self._due and len(self.names) >= self._most:
            return
        self._due = now + RANK_AGAIN_S
        known = scores()

        def rank(name: str) -> tuple[bool, bool, float, bool]:
            entered = self._entered.get(name)
            is_new = entered is not None and now - entered < MIN_STAY_S
            amount = known[name].amount * (1.0 if entered is None else BONUS)
            return known[name].is_pinned, is_new, amount, entered is not None

        names = nlargest(self._most, (name for name in known if name != OTHER), key=rank)
        self._entered = {name: self._entered.get(name, now) for name in names}
        self.names = tuple(names)
