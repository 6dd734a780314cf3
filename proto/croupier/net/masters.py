"""The order in which a client tries several masters.

Rule: a follower that names the leader sends its client there at once, but never in a circle, and
not back to a master that was just found dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from croupier.model.errors import CroupierError, InvalidRequest, NotLeader
from croupier.net.address import Address

MAX_HOPS = 3


class Masters:
    """The known masters of one cluster; at least one."""

    def __init__(self, addresses: Sequence[Address], *, only_loopback: bool = False) -> None:
        """Start with the first of `addresses`; a redirect may lead to others.

        With `only_loopback` no redirect leads to another machine.
        """
        assert addresses
        self._only_loopback = only_loopback
        self._list = cycle(addresses)
        self._current: Address | None = None
        self._leader: Address | None = None
        self._dead: Address | None = None
        self._hops = 0

    def next(self) -> Address:
        """Return the master to try now: the leader that was named last, else the next listed."""
        self._current, self._leader = self._leader or next(self._list), None
        return self._current

    def served(self) -> None:
        """Record that the latest master leads."""
        self._hops, self._dead = 0, None

    def failed(self, error: CroupierError) -> bool:
        """Record the error of the latest master; return whether to try the next without a wait."""
        if not isinstance(error, NotLeader):
            self._hops, self._dead = 0, self._current
            return False
        leader = leader_address(error.leader)
        is_dead, self._dead = leader == self._dead, None
        is_followed = leader is not None and (leader.is_loopback or not self._only_loopback)
        if not is_followed or leader == self._current or is_dead or self._hops >= MAX_HOPS:
            self._hops = 0
            return False
        self._hops += 1
        self._leader = leader
        return True


def leader_address(text: str) -> Address | None:
    """Return the address that a follower names; None if it names none, or no address."""
    try:
        return Address.parse(text) if text else None
    except InvalidRequest:
        return None
