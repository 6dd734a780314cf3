"""Limits of the number of sessions and of their silence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from croupier.model.errors import Unavailable


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of the sessions of one term.

    Attributes:
        most: sessions in all.
        most_per_host: sessions from one address, so that one machine cannot lock out others.
        outbox_bytes: of messages on all sessions; beyond it the largest outbox is cut off.
        register_bytes: of tasks of agents that have not sent REGISTER yet.
        first_call_s: time from the start of a stream to SUBSCRIBE or REGISTER.
    """

    most: int = 20_000
    most_per_host: int = 15_000
    outbox_bytes: int = 256 * 1024 * 1024
    register_bytes: int = 128 * 1024 * 1024
    first_call_s: float = 10.0


class SessionCount:
    """Number of open sessions, in all and from each address."""

    def __init__(self, limits: SessionLimits) -> None:
        """Begin with no session."""
        self.limits = limits
        self._hosts: Counter[str] = Counter()
        self._total = 0

    def add(self, host: str) -> None:
        """Count a new session.

        Raises:
            Unavailable: if there are too many; then it is not counted.
        """
        if self._total >= self.limits.most:
            raise Unavailable(f"{self._total} sessions are open; the master accepts no more")
        if self._hosts[host] >= self.limits.most_per_host:
            number = self._hosts[host]
            raise Unavailable(
                f"{number} sessions are open from this address; the master accepts no more"
            )
        self._hosts[host] += 1
        self._total += 1

    def remove(self, host: str) -> None:
        """Count a session that has ended."""
        self._total -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


def host_of(peer: str) -> str:
    """Return the address of a gRPC peer, such as `ipv4:10.0.0.1:4711`, without its port."""
    return peer.rpartition(":")[0]
