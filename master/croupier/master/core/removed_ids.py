"""Ids of removed frameworks: none of them is ever admitted again.

Rule: memory is bounded; the number of refused ids is not. Masters number the ids within each term.
So the highest removed id of a term covers all lower ones: an unknown id among them belongs to a
removed framework. This holds only for frameworks in the ledger. If the store is lost or replaced by
an old copy, frameworks return with ids that are not in the ledger. Their removal proves nothing
about lower ids, so each of them is remembered separately. When this memory is full, the master
admits no unknown id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from croupier.model.ids import FrameworkId

# The longest number that a master assigns.
_MAX_DIGITS = 18


class RemovedIds:
    """Ids of removed frameworks."""

    def __init__(self, cluster: str, epoch: int, limit: int) -> None:
        """Remember up to `limit` recorded and unrecorded ids each, and each term's highest.

        Args:
            cluster: the prefix of ids that its masters assign.
            epoch: the epoch of the present term.
            limit: a positive number.
        """
        self._cluster, self._epoch, self._limit = cluster, epoch, limit
        self._given: OrderedDict[FrameworkId, None] = OrderedDict()
        self._alone: OrderedDict[FrameworkId, None] = OrderedDict()
        self._highest: dict[int, tuple[int, FrameworkId]] = {}

    def __iter__(self) -> Iterator[FrameworkId]:
        """Iterate over the remembered ids, first the unrecorded, in the order of removal."""
        yield from self._alone
        yield from self._given

    def __contains__(self, framework_id: FrameworkId) -> bool:
        """Return whether an id that no known framework has belongs to a removed one."""
        place = place_of(framework_id, self._cluster)
        is_below = place is not None and place[1] <= self.highest(place[0])
        return is_below or framework_id in self._alone

    def refuses(self, framework_id: FrameworkId) -> bool:
        """Return whether an id that no known framework has is refused."""
        return framework_id in self or len(self._alone) >= self._limit

    def add(self, framework_id: FrameworkId, is_unrecorded: bool = False) -> FrameworkId | None:
        """Add the id of a removed framework; return the id that is forgotten for it.

        `is_unrecorded`: whether it subscribed with an id that was not in the ledger.
        """
        place = place_of(framework_id, self._cluster)
        if place is None or place[0] > self._epoch or is_unrecorded:
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
        """Return the highest removed number of a term; 0 if there is none."""
        return self._highest.get(epoch, (0, ""))[0]


def place_of(framework_id: FrameworkId, cluster: str) -> tuple[int, int] | None:
    """Return epoch and number of an id as masters of the cluster assign it; None for others."""
    prefix, _, number = framework_id.rpartition("-F")
    named, _, epoch = prefix.rpartition("-")
    if named != cluster or not (is_number(epoch) and is_number(number)):
        return None
    return int(epoch), int(number)


def is_number(text: str) -> bool:
    """Return whether the text is a number as masters write it in ids, from 1 on."""
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _MAX_DIGITS
