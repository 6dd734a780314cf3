"""Streams that a test can mute and cut off."""

from __future__ import annotations

from croupier.master.core.effects import Send, SessionId
from croupier.master.core.messages import Subscribed
from croupier.master.session import FrameworkSession
from croupier.master.sessions import Sessions
from croupier.master.wire.to_framework import event_to_wire
from croupier.model.errors import CroupierError
from croupier.model.secrets import SealedValue
from croupier.net.outbox import Encoded


class _Box:
    """Seals nothing: no agent runs the tasks, and tests read values from recorded calls."""

    def seal(self, _place: object, _value: str) -> SealedValue:
        return SealedValue("fake", "-")

    def open(self, _place: object, _sealed: SealedValue) -> str:
        raise AssertionError("a fake master has no agent to open a secret for")


class Streams(Sessions):
    """The master's sessions. Those in `muted` are sent nothing."""

    def __init__(self, max_message_bytes: int) -> None:
        """Announce `max_message_bytes` to frameworks."""
        super().__init__(box=_Box())
        self.muted: set[SessionId] = set()
        self._max_message_bytes = max_message_bytes

    def open(self) -> list[SessionId]:
        """Return the open sessions."""
        return list(self._sessions)

    def send(self, effect: Send) -> None:
        """Queue a message, unless the session is muted."""
        if isinstance(effect.message, Subscribed):
            event = event_to_wire(effect.message, {})
            event.subscribed.max_message_bytes = self._max_message_bytes
            session = self._sessions[effect.session]
            if isinstance(session, FrameworkSession):
                session.framework_id = effect.message.framework_id
            session.outbox.put(Encoded(event.SerializeToString()))
        elif effect.session not in self.muted:
            super().send(effect)

    def beat_all(self) -> None:
        """Send a heartbeat on every stream that is not muted."""
        for session_id, session in self._sessions.items():
            if session_id not in self.muted:
                session.beat()

    def cut(self, session_id: SessionId, error: CroupierError | None) -> None:
        """End a stream with `error` after all that is queued, or at once and without one."""
        session = self._sessions[session_id]
        if error is None:
            session.outbox.drop()
        session.end(error)
