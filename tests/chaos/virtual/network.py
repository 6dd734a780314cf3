"""Streams between processes: in order, delayed, cut, reset, or hanging for ever.

Rule: messages on a stream arrive once and in order, up to the point where it breaks. A side that
has closed its end receives nothing more on it; the other may receive messages sent before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Protocol

from croupier.model.errors import CroupierError, Unavailable
from tests.chaos.virtual.clock import TracedClock

# Latency between two machines, in seconds.
FASTEST_S, SLOWEST_S = 0.001, 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of a stream: the other side or the network has closed it."""

    error: CroupierError


class Host(Protocol):
    """A process that others may connect to."""

    def on_arrival(self, end: End, message: object) -> None:
        """Handle a message of a stream that the process has not closed; `Ended` is the last."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether the process listens."""
        ...


@dataclass(eq=False, slots=True)
class End:
    """One side of a stream; its messages arrive at `peer`.

    Attributes:
        owner: the process of this end; None after its end.
        tag: the session, for use by the owner.
    """

    network: Network
    number: int
    name: str
    peer_name: str
    owner: Host | None
    tag: int = 0
    is_open: bool = True
    is_accepted: bool = True
    _flying: deque[tuple[float, object]] = field(default_factory=deque)
    _other: list[End] = field(default_factory=list)

    @property
    def peer(self) -> End:
        return self._other[0]

    def send(self, message: object) -> None:
        """Send a message, which arrives unless the stream breaks first."""
        if self.is_open:
            self.network.carry(self, message)

    def close(self, error: CroupierError | None = None) -> None:
        """Receive nothing more; the other side receives all messages, and then the end."""
        if self.is_open:
            self.network.carry(self, Ended(error or Unavailable("the stream ended")))
            self.end()

    def end(self) -> None:
        """Receive nothing more."""
        self.is_open = False
        self.network.tidy(self)

    def __str__(self) -> str:
        return f"{self.name}>{self.peer_name}#{self.number}"


class Network:
    """All streams, and the faults between processes."""

    def __init__(self, clock: TracedClock, random: Random) -> None:
        self.clock, self._random = clock, random
        self._hosts: dict[str, Host] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._slow: dict[str, float] = {}
        self._hung: set[int] = set()
        self._broken: set[int] = set()
        self._live: dict[int, End] = {}
        self._numbers = count(1)

    def add(self, name: str, host: Host) -> None:
        """Let others connect to a process."""
        self._hosts[name] = host

    def connect(self, client: str, server: str, owner: Host) -> End:
        """Open a stream; the server notices it at the first message."""
        number = next(self._numbers)
        mine = End(self, number, client, server, owner)
        theirs = End(self, number, server, client, self._hosts[server], is_accepted=False)
        mine._other.append(theirs)
        theirs._other.append(mine)
        self._live[number] = mine
        return mine

    def carry(self, end: End, message: object) -> None:
        """Queue a message for delivery after the latency."""
        if end.number in self._broken:
            return
        clock, flying = self.clock, end._flying
        slow = max(self._slow.get(end.name, 1.0), self._slow.get(end.peer_name, 1.0))
        due = clock.now() + self._random.uniform(FASTEST_S, SLOWEST_S) * slow
        if flying:
            due = max(due, flying[-1][0])
        flying.append((due, message))
        clock.at(due, lambda: self._pump(end))

    def crash(self, name: str, loses: bool) -> None:
        """End the streams of a process; if it `loses`, messages in flight are dropped."""
        for each in self.streams_of(name):
            end = each if each.name == name else each.peer
            if loses:
                end._flying.clear()
            end.close(Unavailable("the connection was reset"))
            end.owner = None

    def reset(self, end: End, loses: bool, notified: tuple[bool, bool]) -> None:
        """Break a stream; drop messages in flight if it `loses`; end only `notified` sides."""
        for sender, hears in zip((end.peer, end), notified, strict=True):
            if loses:
                sender._flying.clear()
            if hears:
                self.carry(sender, Ended(Unavailable("the connection was reset")))
        self._broken.add(end.number)

    def hang(self, end: End) -> None:
        """Deliver nothing on a stream any more, without an error."""
        self._hung.add(end.number)

    def tidy(self, end: End) -> None:
        """Forget a stream on which nothing can arrive any more."""
        peer = end.peer
        waits = (end._flying or peer._flying) and end.number not in self._hung
        if not end.is_open and not peer.is_open and not waits:
            self._live.pop(end.number, None)
            self._hung.discard(end.number)
            self._broken.discard(end.number)

    def cut(self, source: str, target: str) -> None:
        """Hold back all messages from one process to the other."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        self._cuts[source, target] -= 1
        if not self._cuts[source, target]:
            del self._cuts[source, target]
            self._pump_all()

    def slow(self, name: str, factor: float) -> None:
        """Multiply the latency to and from a process; 1 is normal."""
        self._slow[name] = factor

    def heal_all(self) -> None:
        """Undo all faults except hanging streams."""
        self._cuts.clear()
        self._slow.clear()
        self._pump_all()

    def streams_of(self, name: str) -> list[End]:
        """Return one end of each stream of a process."""
        return [end for end in self._live.values() if name in (end.name, end.peer_name)]

    def _pump_all(self) -> None:
        for end in list(self._live.values()):
            self._pump(end)
            self._pump(end.peer)

    def _pump(self, end: End) -> None:
        """Deliver the messages that are due."""
        if end.number in self._hung or (end.name, end.peer_name) in self._cuts:
            return
        now, peer = self.clock.now(), end.peer
        while end._flying and end._flying[0][0] <= now:
            _, message = end._flying.popleft()
            self._deliver(peer, message)
        self.tidy(end)

    def _deliver(self, end: End, message: object) -> None:
        owner = end.owner
        if not end.is_open or owner is None:
            end.is_open = end.is_open and not isinstance(message, Ended)
            return
        if not end.is_accepted:
            end.is_accepted = True
            if not owner.is_up:
                end.close(Unavailable("connection refused"))
                return
        if isinstance(message, Ended):
            end.end()
        if self.clock.is_traced:
            self.clock.trace(f"{end.peer} {_shown(message)}")
        owner.on_arrival(end, message)


def _shown(message: object) -> str:
    func: Callable[..., object] | None = getattr(message, "func", None)
    if func is None:
        return str(message)
    args = [str(each) for each in getattr(message, "args", ())]
    args += [f"{k}={v}" for k, v in getattr(message, "keywords", {}).items()]
    return f"{getattr(func, '__name__', func)}({', '.join(args)})"
