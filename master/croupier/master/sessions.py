"""Open sessions, and the messages that wait to be written on each.

Rule: nothing here waits for a peer. A session whose outbox is full is cut off, and the core is
notified. A message that cannot be encoded ends its own session and no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Final, Generic, TypeVar, cast

from croupier.master.core.effects import Close, Send, SessionId
from croupier.master.core.events import LaunchUnsent, SessionEnded
from croupier.master.core.messages import Subscribed, ToAgent, ToFramework
from croupier.master.core.step import Event
from croupier.master.sealing.box import KeyBox, SecretBox, Unopenable, open_task, seal_task
from croupier.master.session_limits import SessionLimits
from croupier.master.wire.to_agent import order_to_wire
from croupier.master.wire.to_framework import KnownAgents, event_to_wire
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import CroupierError, InvalidRequest, TooSlow, Unavailable
from croupier.model.ids import FrameworkId
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskInfo
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Budget, Encoded, Outbox
from croupier.process.inbox import Inbox
from croupier.process.logging import get_logger
from croupier.v1 import agent_pb2, framework_pb2

# Messages; a step in which 100 agents become unreachable sends a framework fewer.
OUTBOX_LIMIT: Final = 100_000
BEAT_SLICES: Final = 10

_log = get_logger("croupier.master")
_Wire = framework_pb2.Event | agent_pb2.Order
MessageT = TypeVar("MessageT")


class Session(Generic[MessageT]):
    """One stream from a framework or an agent.

    Attributes:
        host: the address that it comes from.
        error: why it was closed, if it was closed for an error.
        is_introduced: whether the peer has sent SUBSCRIBE or REGISTER.
    """

    def __init__(
        self,
        session_id: SessionId,
        host: str,
        budget: Budget | None,
        encode: Callable[[MessageT], _Wire],
        wire: type[_Wire],
    ) -> None:
        """Begin with an empty outbox, which counts toward `budget`."""
        self.session_id, self.host = session_id, host
        self.is_introduced = False
        self.outbox: Outbox[Encoded] = Outbox(OUTBOX_LIMIT, budget=budget)
        self.error: CroupierError | None = None
        self._encode, self._wire = encode, wire

    def put(self, message: MessageT) -> bool:
        """Queue a message; False if there is no room."""
        return self.outbox.put(_encoded(self._encode(message)))

    def beat(self) -> None:
        """Queue a heartbeat."""
        self.outbox.put(_encoded(self._wire(heartbeat=framework_pb2.Heartbeat())))

    def end(self, error: CroupierError | None) -> None:
        """Write what is queued, then the error, and end; only the first end counts."""
        if not self.outbox.is_closed:
            self.error = error
            last = _encoded(self._wire(error=error_to_wire(error))) if error else None
            self.outbox.close(last)


class FrameworkSession(Session[ToFramework]):
    """A framework's stream, which carries the description of each agent once.

    Attributes:
        framework_id: the framework that has subscribed; empty before.
    """

    def __init__(
        self,
        session_id: SessionId,
        host: str = "",
        budget: Budget | None = None,
        box: SecretBox | None = None,
        *,
        is_private: bool = True,
    ) -> None:
        """Seal secrets in `box`; `is_private`: nobody else can read the stream."""
        known: KnownAgents = {}
        self.framework_id = FrameworkId("")
        self.is_private = is_private
        self._box = box or KeyBox()
        super().__init__(
            session_id,
            host,
            budget,
            lambda message: event_to_wire(message, known),
            framework_pb2.Event,
        )

    def put(self, message: ToFramework) -> bool:
        """Queue a message; False if there is no room."""
        if isinstance(message, Subscribed):
            self.framework_id = message.framework_id
        return super().put(message)

    def seal(self, task: TaskInfo, values: SecretValues) -> TaskInfo:
        """Return a task of the framework with its secrets sealed.

        Raises:
            InvalidRequest: if the master has no key, or others can read the stream.
        """
        if not self.is_private:
            raise InvalidRequest(
                "secrets came over an unencrypted connection from another machine, and count as"
                " leaked; connect with TLS (or start the master with --insecure)"
            )
        return seal_task(self._box, self.framework_id, task, values)


class AgentSession(Session[ToAgent]):
    """An agent's stream."""

    def __init__(
        self,
        session_id: SessionId,
        host: str = "",
        budget: Budget | None = None,
        box: SecretBox | None = None,
        *,
        is_private: bool = True,
    ) -> None:
        """Open secrets with `box`; `is_private`: nobody else can read the stream."""
        self.is_private = is_private
        self._box = box or KeyBox()
        super().__init__(session_id, host, budget, self._to_wire, agent_pb2.Order)

    def _to_wire(self, message: ToAgent) -> agent_pb2.Order:
        """Encode a message; secrets are in plain text from here to the agent.

        Raises:
            Unopenable: if a secret of a launch cannot be opened.
        """
        if isinstance(message, LaunchTask) and message.task.command.secrets:
            secrets = open_task(self._box, message.framework_id, message.task)
            return order_to_wire(message, secrets)
        return order_to_wire(message)


SessionT = TypeVar("SessionT", FrameworkSession, AgentSession)


class Sessions:
    """All open sessions; the `Peers` of the driver.

    Attributes:
        limits: the limits of sessions.
        registering: bytes of tasks of agents that have not sent REGISTER yet.
        dropped: messages for sessions that had ended or had no room.
    """

    def __init__(
        self,
        limits: SessionLimits | None = None,
        box: SecretBox | None = None,
        *,
        accepts_plaintext: bool = False,
    ) -> None:
        """Seal and open secrets with `box`; None has no key.

        With `accepts_plaintext`, secrets may pass unencrypted between machines.
        """
        self._box, self._accepts_plaintext = box or KeyBox(), accepts_plaintext
        self.limits = limits or SessionLimits()
        self._hosts: Counter[str] = Counter()
        self._budget = Budget(self.limits.outbox_bytes)
        self.registering = Budget(self.limits.register_bytes)
        self._sessions: dict[SessionId, FrameworkSession | AgentSession] = {}
        self._numbers = count(1)
        self._inbox: Inbox[Event] | None = None
        self.dropped = 0

    def report_to(self, inbox: Inbox[Event]) -> None:
        """Report sessions that are cut off to the core through `inbox`."""
        self._inbox = inbox

    def open_framework(self, host: str = "", *, is_private: bool = True) -> FrameworkSession:
        """Open a session for a framework at this address; `is_private`: encrypted or local.

        Raises:
            Unavailable: if too many are open.
        """
        return self._open(FrameworkSession, host, is_private)

    def open_agent(self, host: str = "", *, is_private: bool = True) -> AgentSession:
        """Open a session for an agent at this address; `is_private`: encrypted or local.

        Raises:
            Unavailable: if too many are open.
        """
        return self._open(AgentSession, host, is_private)

    def _open(self, kind: type[SessionT], host: str, is_private: bool) -> SessionT:
        number, at_host = len(self._sessions), self._hosts[host]
        if number >= self.limits.most:
            raise Unavailable(f"{number} sessions are open; the master accepts no more")
        if at_host >= self.limits.most_per_host:
            raise Unavailable(
                f"{at_host} sessions are open from this address; the master accepts no more"
            )
        self._hosts[host] += 1
        number = SessionId(next(self._numbers))
        is_private |= self._accepts_plaintext
        session = kind(number, host, self._budget, self._box, is_private=is_private)
        self._sessions[session.session_id] = session
        return session

    def forget(self, session_id: SessionId) -> None:
        """Forget a session whose stream has ended."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.outbox.drop()
            self._hosts[session.host] -= 1
            if not self._hosts[session.host]:
                del self._hosts[session.host]

    def send(self, effect: Send) -> None:
        """Queue a message; cut off a session that does not read."""
        session = self._sessions.get(effect.session)
        try:
            # The core sends each peer only messages of its kind.
            if isinstance(session, FrameworkSession):
                sent = session.put(cast("ToFramework", effect.message))
            else:
                sent = session is not None and session.put(cast("ToAgent", effect.message))
        except Unopenable as error:
            self._report_unsent(effect, error)
            return
        except (ValueError, TypeError, OverflowError) as error:
            self._end_unencodable(effect, error)
            return
        if not sent:
            self.dropped += 1
            self._cut_off(effect.session)
        elif self._budget.is_over:
            self._cut_off_largest()

    def close(self, effect: Close) -> None:
        """Write what is queued and the error, and end the session."""
        session = self._sessions.get(effect.session)
        if session is not None:
            session.end(effect.error)

    def end_all(self, error: CroupierError) -> None:
        """Write what is queued and `error` on every session, and end it."""
        for session in self._sessions.values():
            session.end(error)

    def cut_all(self, error: CroupierError) -> None:
        """Drop what is queued on every session, and end it with `error`."""
        for session in self._sessions.values():
            session.outbox.drop()
            session.end(error)

    def queued(self) -> int:
        """Return the number of messages that wait to be written, over all sessions."""
        return sum(len(session.outbox) for session in self._sessions.values())

    async def beat(self, heartbeat_s: float) -> None:
        """Send heartbeats without end, spread over time, on sessions with an empty outbox."""
        for turn in count():
            await asyncio.sleep(heartbeat_s / BEAT_SLICES)
            for session in list(self._sessions.values()):
                due = session.session_id % BEAT_SLICES == turn % BEAT_SLICES
                if due and not len(session.outbox):
                    session.beat()

    def _report_unsent(self, effect: Send, error: Unopenable) -> None:
        """Report a launch whose secrets cannot be opened; nothing else is disturbed."""
        assert isinstance(effect.message, LaunchTask)
        framework_id, task_id = effect.message.framework_id, effect.message.task.task_id
        _log.error(
            "secret_not_opened", framework_id=framework_id, task_id=task_id, error=str(error)
        )
        if self._inbox is not None:
            self._inbox.put_now(LaunchUnsent(effect.session, framework_id, task_id, str(error)))

    def _end_unencodable(self, effect: Send, error: Exception) -> None:
        """End the session of a message that cannot be encoded."""
        kind = type(effect.message).__name__
        self.dropped += 1
        # The text of the error may quote a peer, so it is not logged.
        _log.error("message_not_encoded", message_kind=kind, kind=type(error).__name__)
        self._cut_off(effect.session, CroupierError(f"a {kind} for this peer cannot be encoded"))

    def _cut_off_largest(self) -> None:
        """Cut off the session with the largest outbox: its peer does not read. O(sessions)."""
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


def _encoded(message: _Wire) -> Encoded:
    return Encoded(message.SerializeToString())
