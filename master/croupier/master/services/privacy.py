"""Whether others can read a connection."""

from __future__ import annotations

from croupier.master.services.stream import Context
from croupier.master.session_limits import host_of
from croupier.net.address import Address


def is_private(context: Context) -> bool:
    """Return whether the connection is encrypted or stays on this machine."""
    if b"ssl" in context.auth_context().get("transport_security_type", ()):
        return True
    return is_local(context.peer())


def is_local(peer: str) -> bool:
    """Return whether a gRPC peer, such as `ipv4:10.0.0.1:4711`, is on this machine."""
    kind, _, host = host_of(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer.startswith("unix:")
    # gRPC may percent-encode the brackets.
    host = host.replace("%5B", "").replace("%5D", "").strip("[]")
    return Address(host.removeprefix("::ffff:"), 0).is_loopback
