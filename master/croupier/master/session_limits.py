"""How many streams may stand, and how long one may say nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from croupier.model.errors import Unavailable


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of the sessions of one term.

    Attributes:
        most: sessions in all.
        most_per_host: sessions from one address, so that one machine cannot keep others out.
        outbox_bytes: what may wait to be written on all sessions; beyond it the session with
            most is cut off.
        register_bytes: pages of tasks of agents that have not said REGISTER yet.
        first_call_s: how long a stream may stand before SUBSCRIBE or REGISTER.
    """

    most: int = 20_000
    most_per_host: int = 15_000
    outbox_bytes: int = 256 * 1024 * 1024
    register_bytes: int = 128 * 1024 * 1024
    first_call_s: float = 10.0


class SessionCount:
    """Counts the sessions that stand, in all and from each address."""

    def __init__(self, limits: SessionLimits) -> None:
        """None stands yet."""
        self.limits = limits
        self._hosts: Counter[str] = Counter()
        self._total = 0

    def add(self, host: str) -> None:
        """A session begins.

        Raises:
            Unavailable: if there are too many; then none begins.
        """
        if self._total >= self.limits.most:
            raise Unavailable(f"{self._total} sessions stand; the master takes no more")
        if self._hosts[host] >= self.limits.most_per_host:
            number = self._hosts[host]
            raise Unavailable(
                f"{number} sessions stand from this address; the master takes no more"
            )
        self._hosts[host] += 1
        self._total += 1

    def remove(self, host: str) -> None:
        """A session has ended."""
        self._total -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


def host_of(peer: str) -> str:
    """The address in what gRPC calls a peer, such as `ipv4:10.0.0.1:4711`, without the port."""
    return peer.rpartition(":")[0]
