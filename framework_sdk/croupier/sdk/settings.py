"""Deadlines and bounds of a framework's session."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.net.client_session import SessionTimes


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds and bounds in numbers; the defaults suit a cluster.

    Attributes:
        call_timeout_s: how long a call waits for its verdict, counting connected time only.
        flush_timeout_s: how long `stop` waits for the running handler and the last verdicts.
        teardown_timeout_s: how long `stop` waits for the verdict on TEARDOWN.
        queue_limit: offers and updates that wait for the handler before reading pauses.
        unanswered_limit: calls without a verdict; further calls wait.
        times: of the connection.
    """

    call_timeout_s: float = 30.0
    flush_timeout_s: float = 2.0
    teardown_timeout_s: float = 5.0
    queue_limit: int = 10_000
    unanswered_limit: int = 512
    times: SessionTimes = field(default_factory=SessionTimes)
