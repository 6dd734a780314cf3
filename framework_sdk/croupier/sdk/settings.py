"""How patient a session is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds and bounds in numbers; the defaults suit a cluster.

    Attributes:
        call_timeout_s: how long a call waits for its verdict, counting connected time only.
        connect_timeout_s: how long one master may take to be reached at all.
        subscribe_timeout_s: how long one master may take from connecting to SUBSCRIBED.
        flush_timeout_s: how long stopping waits for the handler under way and the last verdicts.
        teardown_timeout_s: how long stopping waits for the verdict on TEARDOWN.
        backoff_first_s: bound of the first wait before connecting again; doubles each time.
        backoff_cap_s: bound of all such waits; a stream that lived longer resets them.
        election_cap_s: bound of such a wait while masters are there and none of them leads.
        silence_beats: heartbeats of silence after which the master is given up.
        silence_least_s: silence that is always borne.
        explain_timeout_s: how long a stream that takes no more calls may take to say why.
        queue_limit: offers and updates that wait for the handler before reading pauses.
        unanswered_limit: calls without a verdict; more wait.
    """

    call_timeout_s: float = 30.0
    connect_timeout_s: float = 2.0
    subscribe_timeout_s: float = 10.0
    flush_timeout_s: float = 2.0
    teardown_timeout_s: float = 5.0
    backoff_first_s: float = 0.1
    backoff_cap_s: float = 5.0
    election_cap_s: float = 1.0
    silence_beats: int = 5
    silence_least_s: float = 3.0
    explain_timeout_s: float = 1.0
    queue_limit: int = 10_000
    unanswered_limit: int = 512
