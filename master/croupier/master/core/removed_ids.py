"""Ids of frameworks that were removed: none of them is ever admitted again.

Rule: what is remembered is bounded, and what is refused is not. Ids that masters of this cluster
gave are counted within each term, so the highest removed id of a term stands for all below it:
one of those that is not known belongs to a framework that was removed. This holds only for
frameworks that the ledger knew. Frameworks whose master has lost its store, or goes on with an old
copy, return with ids that the ledger does not know. The removal of one of these says nothing about
ids below it, so each of them is remembered alone. Once there is no room for another one, no id that
the ledger does not know is admitted any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from croupier.model.ids import FrameworkId

# Of a number in an id; longer ones are none that a master gave.
_MAX_DIGITS = 18


class RemovedIds:
    """Removed frameworks' ids; `in` says whether one is known to be of these."""

    def __init__(self, cluster: str, epoch: int, limit: int) -> None:
        """Remember up to `limit` ids of each kind, and the highest one of each term.

        Args:
            cluster: the name with which the ids that its masters give begin.
            epoch: of the present term.
            limit: of ids; a positive number.
        """
        self._cluster, self._epoch, self._limit = cluster, epoch, limit
        self._given: OrderedDict[FrameworkId, None] = OrderedDict()
        self._alone: OrderedDict[FrameworkId, None] = OrderedDict()
        self._highest: dict[int, tuple[int, FrameworkId]] = {}
        self._last = 0

    def __iter__(self) -> Iterator[FrameworkId]:
        """Those that are remembered, each kind in the order of removal."""
        yield from self._alone
        yield from self._given

    def __contains__(self, framework_id: FrameworkId) -> bool:
        """Whether the id is of a removed framework, if it is of none that is known."""
        place = self._place(framework_id)
        is_below = place is not None and place[1] <= self.highest(place[0])
        return is_below or framework_id in self._alone

    def refuses(self, framework_id: FrameworkId) -> bool:
        """Whether no framework may come with the id, if it is of none that is known."""
        return framework_id in self or len(self._alone) >= self._limit

    def add(self, framework_id: FrameworkId, is_unrecorded: bool = False) -> FrameworkId | None:
        """Take in the id of a removed framework; return the one that is forgotten for it.

        Args:
            framework_id: of the framework.
            is_unrecorded: the ledger did not know of the framework when it came.
        """
        place = self._place(framework_id)
        if place is not None and place[0] == self._epoch:
            self._last = max(self._last, place[1])
        if place is None or is_unrecorded:
            self._alone[framework_id] = None
            if len(self._alone) > self._limit:
                return self._alone.popitem(last=False)[0]
            return None
        epoch, number = place
        self._given[framework_id] = None
        if number > self.highest(epoch):
            self._highest[epoch] = (number, framework_id)
        if len(self._given) <= self._limit:
            return None
        highest = {each for _, each in self._highest.values()}
        forgotten = next((each for each in self._given if each not in highest), None)
        if forgotten is not None:
            del self._given[forgotten]
        return forgotten

    def highest(self, epoch: int) -> int:
        """The number of that term that stands for all below it; 0: there is none."""
        return self._highest.get(epoch, (0, ""))[0]

    @property
    def last_of_term(self) -> int:
        """The highest number of a removed framework with an id of the present term; or 0."""
        return self._last

    def _place(self, framework_id: FrameworkId) -> tuple[int, int] | None:
        """Term and number of an id as masters of this cluster give them; None: it is none."""
        prefix, _, number = framework_id.rpartition("-F")
        cluster, _, epoch = prefix.rpartition("-")
        if cluster != self._cluster or not (_is_count(epoch) and _is_count(number)):
            return None
        return (int(epoch), int(number)) if 1 <= int(epoch) <= self._epoch else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _MAX_DIGITS
