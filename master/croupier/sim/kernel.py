"""The kernel: a master's real core, driven in virtual time.

Rule: time moves only from one thing that is to happen to the next, and the master and its
pretend peers come to rest at each instant before it moves on. What a peer says at one instant
it says at once, as the real ones batch: an agent's status updates are one report, and the
tasks that a framework launches on one agent are one ACCEPT.

Whoever is first to have something to say speaks first, and the agenda keeps the order in
which things were put on it: nothing depends on hashing, so a run can be repeated exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from croupier.master.core.effects import Close, Happened, Send, SessionId
from croupier.master.core.events import AllocationDue, TimePassed
from croupier.master.core.facts import Fact
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.state import State
from croupier.master.core.step import Event, step
from croupier.model.errors import CroupierError

# Peers that answer each other without end at one instant would keep time from passing.
_MAX_ROUNDS = 100_000

Action = Callable[[], None]


class Peer(Protocol):
    """Who stands at the other end of a session."""

    def take(self, message: ToAgent | ToFramework) -> None:
        """Take in a message. It must not step the master: call `Kernel.will_speak` for that."""
        ...

    def speak(self) -> None:
        """Tell the master all there is to say now."""
        ...

    def closed(self, error: CroupierError | None) -> None:
        """The master has ended the session."""
        ...


@dataclass(slots=True)
class _Watcher:
    at: float
    interval_s: float
    look: Action


class Kernel:
    """Virtual time, what is to happen in it, and the master.

    Attributes:
        now: virtual seconds since the beginning.
        state: all that the master knows.
        steps: how many events the master was given.
        on_fact: told of each thing that happened, if set.
    """

    def __init__(self, state: State, check_every: int = 0) -> None:
        """With `check_every` above 0 every invariant is asserted each so many steps."""
        self.state = state
        self.now = 0.0
        self.steps = 0
        self.on_fact: Callable[[Fact], None] | None = None
        self._check_every = check_every
        self._agenda: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._sessions = count(1)
        self._peers: dict[SessionId, Peer] = {}
        self._speaking: dict[Peer, None] = {}
        self._watchers: list[_Watcher] = []

    def at(self, when: float, action: Action) -> None:
        """Have `action` done at `when`, after what was put on the agenda for then before.

        A time that has passed is now.
        """
        heapq.heappush(self._agenda, (max(when, self.now), next(self._numbers), action))

    def every(self, interval_s: float, action: Action) -> None:
        """Have `action` done now and after each `interval_s`, for ever."""

        def again() -> None:
            action()
            self.at(self.now + interval_s, again)

        self.at(self.now, again)

    def watch(self, interval_s: float, look: Action) -> None:
        """Have `look` called at each `interval_s` from now, when all is at rest.

        It must change nothing: who watches does not disturb.
        """
        self._watchers.append(_Watcher(self.now, interval_s, look))

    def open_session(self, peer: Peer) -> SessionId:
        """A new session between the master and `peer`."""
        session = SessionId(next(self._sessions))
        self._peers[session] = peer
        return session

    def end_session(self, session: SessionId) -> None:
        """Have nothing more delivered on the session."""
        self._peers.pop(session, None)

    def will_speak(self, peer: Peer) -> None:
        """Have `peer` speak at this instant, after those who already will."""
        self._speaking[peer] = None

    def tell(self, event: Event) -> None:
        """Give the master an event, and its peers what it has to say to that."""
        self.steps += 1
        for effect in step(self.state, event, self.now):
            if isinstance(effect, Send):
                peer = self._peers.get(effect.session)
                if peer is not None:
                    peer.take(effect.message)
            elif isinstance(effect, Happened):
                if self.on_fact is not None:
                    self.on_fact(effect.fact)
            elif isinstance(effect, Close):
                peer = self._peers.pop(effect.session, None)
                if peer is not None:
                    peer.closed(effect.error)
        if self._check_every and self.steps % self._check_every == 0:
            self.state.check()

    def run(
        self,
        until: float,
        progress: Callable[[float], None] | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        """Let time pass to `until`, or to when it `is_over`.

        `progress` is told the time now and then.

        Raises:
            RuntimeError: if the peers never come to rest.
        """
        instants = 0
        self._rest()
        while (at := self._next()) is not None and at <= until:
            if is_over is not None and is_over():
                return
            self._look(at)
            self.now = at
            due = self.state.next_deadline()
            if due is not None and due <= at:
                self.tell(TimePassed())
            while self._agenda and self._agenda[0][0] <= at:
                heapq.heappop(self._agenda)[2]()
            self._rest()
            instants += 1
            if progress is not None and instants % 256 == 0:
                progress(at)
        if is_over is None or not is_over():
            self._look(until)
            self.now = max(self.now, until)

    def _look(self, before: float) -> None:
        """Let those watch whose time is earlier than `before`."""
        for watcher in self._watchers:
            while watcher.at < before:
                self.now = max(self.now, watcher.at)
                watcher.look()
                watcher.at += watcher.interval_s

    def _next(self) -> float | None:
        due = self.state.next_deadline()
        if not self._agenda:
            return due if due is None else max(due, self.now)
        at = self._agenda[0][0]
        return at if due is None else max(min(at, due), self.now)

    def _rest(self) -> None:
        for _ in range(_MAX_ROUNDS):
            if self._speaking:
                speaking, self._speaking = self._speaking, {}
                for peer in speaking:
                    peer.speak()
            elif self.state.allocator.has_dirty_agents:
                self.tell(AllocationDue())
            else:
                return
        raise RuntimeError(f"at {self.now} s the master and its peers never come to rest")
