"""What becomes of the calls on a stream beside their decision: their rate and their audit lines."""

from __future__ import annotations

from typing import Final

from croupier.master.access.audit import Audit
from croupier.master.access.caller import Call
from croupier.master.access.rate_limits import RateLimiter, Usage
from croupier.master.batch import event_cost
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.step import Event
from croupier.master.services.stream_audit import StreamAudit
from croupier.model.errors import CroupierError
from croupier.net.outbox import Sized
from croupier.process.inbox import Inbox


class StreamGuard:
    """Guards the calls of one stream."""

    def __init__(
        self,
        limiter: RateLimiter | None = None,
        usage: Usage | None = None,
        audit: StreamAudit | None = None,
    ) -> None:
        """Limit the calls to the rate of `usage`, and audit them; None: not."""
        self._limiter, self._usage, self._audit = limiter, usage, audit

    async def put(self, inbox: Inbox[Event], event: Event, wire: Sized) -> None:
        """Put a call into the inbox; `wire` is its message. Wait if calls come too fast."""
        if self._audit is not None:
            self._audit.received(event, wire)
        if self._limiter is None or self._usage is None:
            await inbox.put(event)
        else:
            await self._limiter.put(self._usage, inbox, event, event_cost(event))

    def sent(self, message: ToFramework | ToAgent, /) -> None:
        """Write the audit line of the call that `message` answers."""
        if self._audit is not None:
            self._audit.sent(message)

    def ended(self, error: CroupierError | None, /) -> None:
        """Write the audit lines of the calls that were not answered."""
        if self._audit is not None:
            self._audit.ended(error)


NO_GUARD: Final = StreamGuard()


class StreamGuards:
    """Makes the guards of streams."""

    def __init__(self, limiter: RateLimiter, audit: Audit, *, is_limited: bool) -> None:
        """Audit by `audit`; `is_limited`: limit the rate of each principal."""
        self._limiter, self._audit, self._is_limited = limiter, audit, is_limited

    def of(self, call: Call) -> StreamGuard:
        """Return the guard of the stream that `call` opens."""
        audit = StreamAudit(self._audit, call) if self._audit.is_on else None
        if not self._is_limited:
            return StreamGuard(audit=audit)
        usage = self._limiter.usage(call.caller.rate_key)
        return StreamGuard(self._limiter, usage, audit)
