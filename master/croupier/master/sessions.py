"""The streams that stand, and what waits to be written on each.

Rule: nothing here ever waits for a peer. A peer that leaves its messages unread until its
outbox is full is cut off, and the core told so. So is one whose message cannot be encoded: that
ends its own session and no other.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final, cast

from croupier.master.core.effects import Close, Send, SessionId
from croupier.master.core.events import SessionEnded
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.step import Event
from croupier.master.session_limits import SessionCount, SessionLimits
from croupier.master.wire.to_agent import order_to_wire
from croupier.master.wire.to_framework import AgentsTold, event_to_wire
from croupier.model.errors import CroupierError, TooSlow
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Budget, Encoded, Outbox
from croupier.process.inbox import Inbox
from croupier.process.logging import get_logger
from croupier.v1 import agent_pb2, framework_pb2

# Room for what one step may say to a framework: a hundred agents may be given up in it.
OUTBOX_LIMIT: Final = 100_000
BEAT_SLICES: Final = 10

_log = get_logger("croupier.master")


class Session:
    """One stream from a framework or an agent.

    Attributes:
        host: the address that it comes from.
        error: why it was closed, if it was closed for an error.
        is_introduced: whether the peer has said who it is, by SUBSCRIBE or REGISTER.
    """

    def __init__(self, session_id: SessionId, host: str = "", budget: Budget | None = None) -> None:
        """A stream that nothing was said on yet; what waits on it counts toward `budget`."""
        self.session_id, self.host = session_id, host
        self.is_introduced = False
        self.outbox: Outbox[Encoded] = Outbox(OUTBOX_LIMIT, budget=budget)
        self.error: CroupierError | None = None


class FrameworkSession(Session):
    """A framework's stream; it is told of each agent once."""

    def __init__(self, session_id: SessionId, host: str = "", budget: Budget | None = None) -> None:
        """A stream that knows of no agents."""
        super().__init__(session_id, host, budget)
        self._told = AgentsTold()

    def put(self, message: ToFramework) -> bool:
        """Queue a message; False if there is no room."""
        return self.outbox.put(_encoded(event_to_wire(message, self._told)))

    def beat(self) -> None:
        """Say that the master is there."""
        self.outbox.put(_FRAMEWORK_BEAT)

    def end(self, error: CroupierError | None) -> None:
        """Write what is queued, then the error, and end; the first end counts."""
        if self.outbox.is_closed:
            return
        self.error = error
        last = framework_pb2.Event(error=error_to_wire(error)) if error else None
        self.outbox.close(_encoded(last) if last is not None else None)


class AgentSession(Session):
    """An agent's stream."""

    def put(self, message: ToAgent) -> bool:
        """Queue a message; False if there is no room."""
        return self.outbox.put(_encoded(order_to_wire(message)))

    def beat(self) -> None:
        """Say that the master is there."""
        self.outbox.put(_AGENT_BEAT)

    def end(self, error: CroupierError | None) -> None:
        """Write what is queued, then the error, and end; the first end counts."""
        if self.outbox.is_closed:
            return
        self.error = error
        last = agent_pb2.Order(error=error_to_wire(error)) if error else None
        self.outbox.close(_encoded(last) if last is not None else None)


class Sessions:
    """All streams; the `Peers` of the driver.

    Attributes:
        limits: how many may stand, and how long one may say nothing.
        registering: pages of agents that have not said REGISTER yet.
        dropped: messages that were for sessions that had ended, or that had no room.
    """

    def __init__(self, limits: SessionLimits | None = None) -> None:
        """None stands yet."""
        self.limits = limits or SessionLimits()
        self._count = SessionCount(self.limits)
        self._budget = Budget(self.limits.outbox_bytes)
        self.registering = Budget(self.limits.register_bytes)
        self._sessions: dict[SessionId, FrameworkSession | AgentSession] = {}
        self._numbers = count(1)
        self._inbox: Inbox[Event] | None = None
        self.dropped = 0

    def report_to(self, inbox: Inbox[Event]) -> None:
        """Have the core told of sessions that had to be cut off."""
        self._inbox = inbox

    def open_framework(self, host: str = "") -> FrameworkSession:
        """A new framework stream from this address.

        Raises:
            Unavailable: if too many stand.
        """
        self._count.add(host)
        session = FrameworkSession(SessionId(next(self._numbers)), host, self._budget)
        self._sessions[session.session_id] = session
        return session

    def open_agent(self, host: str = "") -> AgentSession:
        """A new agent stream from this address.

        Raises:
            Unavailable: if too many stand.
        """
        self._count.add(host)
        session = AgentSession(SessionId(next(self._numbers)), host, self._budget)
        self._sessions[session.session_id] = session
        return session

    def forget(self, session_id: SessionId) -> None:
        """The stream has ended."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.outbox.drop()
            self._count.remove(session.host)

    def send(self, effect: Send) -> None:
        """Queue a message; cut the session off if it does not read."""
        session = self._sessions.get(effect.session)
        try:
            # The core sends each peer only what is for its kind.
            if isinstance(session, FrameworkSession):
                sent = session.put(cast("ToFramework", effect.message))
            else:
                sent = session is not None and session.put(cast("ToAgent", effect.message))
        except (ValueError, TypeError, OverflowError) as error:
            self._end_unencodable(effect, error)
            return
        if not sent:
            self.dropped += 1
            self._cut_off(effect.session)
        elif self._budget.is_over:
            self._cut_off_largest()

    def close(self, effect: Close) -> None:
        """Write what is queued, say why, and end the stream."""
        session = self._sessions.get(effect.session)
        if session is not None:
            session.end(effect.error)

    def end_all(self, error: CroupierError) -> None:
        """The master stops: write what is queued, say why, and end every stream."""
        for session in self._sessions.values():
            session.end(error)

    def cut_all(self, error: CroupierError) -> None:
        """The master leads no more: what is queued is not for it to say."""
        for session in self._sessions.values():
            session.outbox.drop()
            session.end(error)

    def queued(self) -> int:
        """How many messages wait to be written, over all sessions."""
        return sum(len(session.outbox) for session in self._sessions.values())

    async def beat(self, heartbeat_s: float) -> None:
        """Send heartbeats for ever, spread over time, to whoever is sent nothing else."""
        for turn in count():
            await asyncio.sleep(heartbeat_s / BEAT_SLICES)
            for session in list(self._sessions.values()):
                due = session.session_id % BEAT_SLICES == turn % BEAT_SLICES
                if due and not len(session.outbox):
                    session.beat()

    def _end_unencodable(self, effect: Send, error: Exception) -> None:
        """End the session of a message that cannot be put on the wire."""
        kind = type(effect.message).__name__
        self.dropped += 1
        # The text of the error may quote what a peer has sent.
        _log.error("message_not_encoded", message_kind=kind, kind=type(error).__name__)
        self._cut_off(effect.session, CroupierError(f"a {kind} for this peer cannot be encoded"))

    def _cut_off_largest(self) -> None:
        """What waits on all sessions is too much: the one with most does not read. O(sessions)."""
        largest = max(self._sessions.values(), key=lambda each: each.outbox.held_bytes)
        self.dropped += len(largest.outbox)
        if largest.outbox.is_closed:
            largest.outbox.drop()
        else:
            self._cut_off(largest.session_id)

    def _cut_off(self, session_id: SessionId, error: CroupierError | None = None) -> None:
        session = self._sessions.get(session_id)
        if session is None or session.outbox.is_closed:
            return
        error = error or TooSlow(f"{len(session.outbox)} messages were left unread")
        session.outbox.drop()
        session.end(error)
        if self._inbox is not None:
            self._inbox.put_now(SessionEnded(session_id, str(error)))


def _encoded(message: framework_pb2.Event | agent_pb2.Order) -> Encoded:
    return Encoded(message.SerializeToString())


_FRAMEWORK_BEAT = _encoded(framework_pb2.Event(heartbeat=framework_pb2.Heartbeat()))
_AGENT_BEAT = _encoded(agent_pb2.Order(heartbeat=framework_pb2.Heartbeat()))
