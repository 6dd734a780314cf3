"""The kernel: a master's real core, driven in virtual time.

Rules: time moves only from one scheduled action to the next. Actions of one time run in the order
in which they were scheduled, so nothing depends on hashing or on the machine's clock. The master
and its simulated peers come to rest at each instant before time moves on. Like real ones, a peer
batches its messages of one instant: an agent's status updates are one report, and the tasks that a
framework launches on one agent are one ACCEPT. Peers send in the order in which they first had
something to send.
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

Action = Callable[[], None]


class VirtualClock:
    """A `croupier.model.clock.Clock` that moves as its owner runs scheduled actions."""

    def __init__(self, epoch_ms: int = 0) -> None:
        """Begin at 0, which is `epoch_ms` milliseconds since 1970."""
        self._now = 0.0
        self._epoch_ms = epoch_ms
        self._actions: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def now(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._now

    def wall_ms(self) -> int:
        """Return the virtual milliseconds since 1970."""
        return self._epoch_ms + int(self._now * 1000)

    def at(self, when: float, action: Action) -> None:
        """Schedule an action; a time in the past is now."""
        heapq.heappush(self._actions, (max(when, self._now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        """Schedule an action after a number of seconds."""
        self.at(self._now + seconds, action)

    def next_at(self) -> float | None:
        """Return the time of the next action; None if none is scheduled."""
        return self._actions[0][0] if self._actions else None

    def move_to(self, when: float) -> None:
        """Let time pass without running any action; time never goes back."""
        self._now = max(self._now, when)

    def run(self, until: float) -> int:
        """Run all actions up to a time, move to it, and return how many ran."""
        ran = 0
        actions = self._actions
        while actions and actions[0][0] <= until:
            self._now, _, action = heapq.heappop(actions)
            ran += 1
            action()
        self.move_to(until)
        return ran


# Peers that answer each other without end at one instant would keep time from passing.
_MAX_ROUNDS = 100_000


class Peer(Protocol):
    """The other end of a session."""

    def take(self, message: ToAgent | ToFramework) -> None:
        """Handle a message. It must not step the master: call `Kernel.will_send` for that."""

    def send(self) -> None:
        """Send all messages that are due."""

    def closed(self, error: CroupierError | None) -> None:
        """Handle the end of the session by the master."""


@dataclass(slots=True)
class _Sampler:
    at: float
    interval_s: float
    sample: Action


class Kernel:
    """Virtual time, and the master's core in it; `on_fact` receives each fact, if set."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.on_fact: Callable[[Fact], None] | None = None
        self._clock = VirtualClock()
        self.at = self._clock.at
        self._sessions = count(1)
        self._peers: dict[SessionId, Peer] = {}
        self._sending: dict[Peer, None] = {}
        self._samplers: list[_Sampler] = []

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self._clock.now()

    def sample(self, interval_s: float, sample: Action) -> None:
        """Call `sample` at each `interval_s` from now, at rest; it must change nothing."""
        self._samplers.append(_Sampler(self.now, interval_s, sample))

    def open_session(self, peer: Peer) -> SessionId:
        """Open a session between the master and `peer`."""
        session = SessionId(next(self._sessions))
        self._peers[session] = peer
        return session

    def end_session(self, session: SessionId) -> None:
        """Deliver nothing more on the session."""
        self._peers.pop(session, None)

    def will_send(self, peer: Peer) -> None:
        """Make `peer` send at this instant, after the peers that are already waiting to."""
        self._sending[peer] = None

    def step(self, event: Event) -> None:
        """Give the master an event, and deliver its messages."""
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

    def run(
        self,
        until: float,
        progress: Callable[[float], None] | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        """Run to `until`, or until `is_over`; raises RuntimeError if peers never come to rest."""
        instants = 0
        self._rest()
        while (at := self._next()) is not None and at <= until:
            if is_over is not None and is_over():
                return
            self._sample(at)
            self._clock.move_to(at)
            due = self.state.next_deadline()
            if due is not None and due <= at:
                self.step(TimePassed())
            self._clock.run(at)
            self._rest()
            instants += 1
            if progress is not None and instants % 256 == 0:
                progress(at)
        if is_over is None or not is_over():
            self._sample(until)
            self._clock.move_to(until)

    def _sample(self, before: float) -> None:
        """Take the samples whose time is earlier than `before`."""
        for sampler in self._samplers:
            while sampler.at < before:
                self._clock.move_to(sampler.at)
                sampler.sample()
                sampler.at += sampler.interval_s

    def _next(self) -> float | None:
        times = (self.state.next_deadline(), self._clock.next_at())
        at = min((each for each in times if each is not None), default=None)
        return None if at is None else max(at, self.now)

    def _rest(self) -> None:
        for _ in range(_MAX_ROUNDS):
            if self._sending:
                sending, self._sending = self._sending, {}
                for peer in sending:
                    peer.send()
            elif self.state.allocator.has_dirty_agents:
                self.step(AllocationDue())
            else:
                return
        raise RuntimeError(f"at {self.now} s the master and its peers never come to rest")
