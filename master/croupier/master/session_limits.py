"""Limits of sessions."""

from __future__ import annotations

from dataclasses import dataclass


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


def host_of(peer: str) -> str:
    """Return the address of a gRPC peer, such as `ipv4:10.0.0.1:4711`, without its port."""
    return peer.rpartition(":")[0]
