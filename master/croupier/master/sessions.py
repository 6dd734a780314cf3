"""Open sessions, and the messages that wait to be written on each.

Rule: nothing here waits for a peer. A session whose outbox is full is cut off, and the core is
notified. A message that cannot be encoded ends its own session and no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from typing import Final, NoReturn, TypeVar, cast

from croupier.master.access.caller import UNKNOWN_CALLER, Caller, CredentialKind
from croupier.master.access.cluster_keys import LaunchProofs, LinkKeys
from croupier.master.core.effects import Close, Send, SessionId
from croupier.master.core.events import LaunchUnsent, SessionEnded
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.step import Event
from croupier.master.sealing import KeyBox, SecretBox, Unopenable
from croupier.master.session import AgentSession, FrameworkSession
from croupier.model.agent_orders import LaunchGroup, LaunchTask
from croupier.model.clock import Clock
from croupier.model.deadlines import Deadlines
from croupier.model.errors import CroupierError, TooSlow, Unauthenticated, Unavailable, shortened
from croupier.model.log_throttle import LogThrottle
from croupier.net.outbox import Budget
from croupier.process.inbox import Inbox
from croupier.process.logging import get_logger

BEAT_SLICES: Final = 10
# Interval between checks for credentials that have expired.
EXPIRY_S: Final = 0.5
# Agents that come back after an outage in each second, and the longest that one waits between two
# attempts.
PEERS_PER_S: Final = 2000
MOST_RECONNECT_S: Final = 10.0

_log = get_logger("croupier.master")
SessionT = TypeVar("SessionT", bound=FrameworkSession | AgentSession)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of the sessions of one term.

    Attributes:
        most: sessions in all.
        most_per_host: sessions from one address, so that one machine cannot lock out others.
        most_per_principal: sessions of one principal, if callers are authenticated.
        outbox_bytes: messages in all outboxes; beyond it the largest outbox's session is cut off.
        register_bytes: tasks of agents that have not sent REGISTER yet.
        first_call_s: time from the start of a stream to SUBSCRIBE or REGISTER.
    """

    most: int = 20_000
    most_per_host: int = 15_000
    most_per_principal: int = 2_000
    outbox_bytes: int = 256 * 1024 * 1024
    register_bytes: int = 128 * 1024 * 1024
    first_call_s: float = 10.0


class Sessions:
    """All open sessions; the `Peers` of the driver.

    Attributes:
        registering: bytes of tasks of agents that have not sent REGISTER yet.
        proofs: make and judge proofs of launches; None: launches need no proof.
        dropped: messages for sessions that had ended or had no room.
        not_accepted: sessions that ended before SUBSCRIBED or REGISTERED, by `full` (there were too
            many), `refused` (by the master) or `left` (the peer went).
    """

    def __init__(
        self,
        limits: SessionLimits | None = None,
        box: SecretBox | None = None,
        links: LinkKeys | None = None,
        proofs: LaunchProofs | None = None,
        *,
        accepts_plaintext: bool = False,
    ) -> None:
        """Seal and open secrets with `box`; None has no key.

        `links` holds the keys of links to output; None: output needs no links.
        `accepts_plaintext`: secrets may pass unencrypted between machines.
        """
        self._box, self._accepts_plaintext = box or KeyBox(), accepts_plaintext
        self._links, self.proofs = links, proofs
        self.limits = limits or SessionLimits()
        self._hosts: Counter[str] = Counter()
        self._principals: Counter[str] = Counter()
        # Of credentials, in milliseconds since the epoch.
        self._expiries: Deadlines[SessionId] = Deadlines()
        self._budget = Budget(self.limits.outbox_bytes)
        self.registering = Budget(self.limits.register_bytes)
        self._sessions: dict[SessionId, FrameworkSession | AgentSession] = {}
        self._numbers = count(1)
        self._inbox: Inbox[Event] | None = None
        self.dropped = 0
        self.not_accepted = Counter({"full": 0, "refused": 0, "left": 0})
        self._throttle = LogThrottle()

    def report_to(self, inbox: Inbox[Event]) -> None:
        """Report sessions that are cut off to the core through `inbox`."""
        self._inbox = inbox

    def open_framework(
        self, caller: Caller = UNKNOWN_CALLER, *, is_private: bool = True
    ) -> FrameworkSession:
        """Open a session for a framework; `is_private`: encrypted or local.

        Raises Unavailable if too many are open.
        """
        return self.open_session(FrameworkSession, caller, is_private=is_private)

    def open_agent(
        self, caller: Caller = UNKNOWN_CALLER, *, is_private: bool = True
    ) -> AgentSession:
        """Open a session for an agent. Raises as `open_framework`."""
        session = self.open_session(AgentSession, caller, is_private=is_private)
        session.links, session.proofs = self._links, self.proofs
        # Few peers may all come back at once.
        session.reconnect_s = min(max(len(self._sessions) / PEERS_PER_S, 1.0), MOST_RECONNECT_S)
        return session

    def open_session(self, kind: type[SessionT], caller: Caller, *, is_private: bool) -> SessionT:
        """Open a session of a kind of framework or agent. Raises as `open_framework`."""
        try:
            self._check_room(caller)
        except Unavailable as error:
            self._note_not_accepted("full", caller, error)
            raise
        self._hosts[caller.host] += 1
        self._principals[caller.principal.name] += 1
        session_id = SessionId(next(self._numbers))
        is_private |= self._accepts_plaintext
        session = kind(session_id, caller, self._budget, self._box, is_private=is_private)
        self._sessions[session_id] = session
        if caller.expires_ms is not None:
            self._expiries.set(session_id, caller.expires_ms)
        return session

    def _check_room(self, caller: Caller) -> None:
        """Raise Unavailable if too many sessions are open for another one of the caller."""
        host, principal = caller.host, caller.principal.name
        number, at_host = len(self._sessions), self._hosts[host]
        of_it = self._principals[principal]
        if number >= self.limits.most:
            raise Unavailable(f"{number} sessions are open; the master accepts no more")
        if at_host >= self.limits.most_per_host:
            raise Unavailable(
                f"{at_host} sessions are open from this address; the master accepts no more"
            )
        if principal and of_it >= self.limits.most_per_principal:
            raise Unavailable(f"{principal} has {of_it} sessions; the master accepts no more")

    def _note_not_accepted(self, why: str, caller: Caller, error: CroupierError | None) -> None:
        """Count a session whose peer was not accepted; log the first and how many follow."""
        self.not_accepted[why] += 1
        if self._throttle.is_due(why, time.monotonic()):
            _log.warning(
                "session_not_accepted",
                why=why,
                peer=caller.host,
                error=None if error is None else str(shortened(error)),
                more=self._throttle.take_suppressed(),
            )

    def forget(self, session_id: SessionId) -> None:
        """Forget a session whose stream has ended."""
        session = self._sessions.pop(session_id, None)
        self._expiries.cancel(session_id)
        if session is not None:
            session.outbox.drop()
            if session.audit is not None:
                session.audit.ended(session.error)
            if not session.is_accepted:
                why = "left" if session.error is None else "refused"
                self._note_not_accepted(why, session.caller, session.error)
            _decrement(self._hosts, session.caller.host)
            _decrement(self._principals, session.caller.principal.name)

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

    def open_exec(self, session_id: SessionId, exec_id: str) -> bool:
        """Order an agent to open a stream for a command; False if its session has no room."""
        session = self._sessions.get(session_id)
        return isinstance(session, AgentSession) and session.open_exec(exec_id)

    def close(self, effect: Close) -> None:
        """Write what is queued and the error, and end the session."""
        session = self._sessions.get(effect.session)
        if session is not None:
            session.end(effect.error)

    def end_revoked(self, revoked: Collection[str]) -> None:
        """End all sessions that were opened by these tokens and keys. O(sessions)."""
        if not revoked:
            return
        for session in list(self._sessions.values()):
            caller = session.caller
            can_be_revoked = caller.is_token or caller.kind is CredentialKind.CERTIFICATE
            if can_be_revoked and caller.credential_id in revoked:
                error = Unauthenticated(f"the {caller.kind.value} of this stream was revoked")
                self._cut_off(session.session_id, error)

    async def watch_expiry(self, clock: Clock) -> NoReturn:
        """End sessions whose credentials expire, until cancelled.

        The error is not fatal for peers: they connect again, and read a renewed credential.
        """
        error = Unavailable("the credential has expired; connect again with a renewed one")
        while True:
            await asyncio.sleep(EXPIRY_S)
            for session_id in self._expiries.due(clock.wall_ms()):
                self._cut_off(session_id, error)

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
        """Send heartbeats until cancelled, spread over time, on sessions with an empty outbox.

        Agents get one in two of their intervals: for them a master is silent only after five.
        """
        for turn in count():
            await asyncio.sleep(heartbeat_s / BEAT_SLICES)
            for session in list(self._sessions.values()):
                period = BEAT_SLICES
                if isinstance(session, AgentSession):
                    period = round(2 * period * max(session.heartbeat_s / heartbeat_s, 1.0))
                if (turn - session.session_id) % period == 0 and not len(session.outbox):
                    session.beat()

    def _report_unsent(self, effect: Send, error: Unopenable) -> None:
        """Report a launch whose secrets cannot be opened; other messages are sent as usual."""
        message = effect.message
        # The core ends the whole group with one of its tasks.
        order = message.tasks[0] if isinstance(message, LaunchGroup) else message
        assert isinstance(order, LaunchTask)
        framework_id, task_id = order.framework_id, order.task.task_id
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
        session.is_cut = True
        session.outbox.drop()
        session.end(error)
        if self._inbox is not None:
            self._inbox.put_now(SessionEnded(session_id, str(error)))


def _decrement(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
