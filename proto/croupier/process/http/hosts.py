"""The hosts that a request may name, against DNS rebinding.

A browser sends the name that its page was loaded from. An attacker can make their own name resolve
to this machine's address, but cannot make the browser send another name, or an address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address

from croupier.net.address import Address


def parse_names(text: str) -> tuple[str, ...]:
    """Read hostnames joined by commas; raises InvalidRequest if one is malformed."""
    return tuple(Address.parse(name, 0).host for name in text.split(",") if name.strip())


class HttpHosts:
    """Names of this machine; addresses and `localhost` are always allowed."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*names, socket.gethostname()) if name}

    def allows(self, host: str | None) -> bool:
        """Return whether a request with this Host header (None: without one) is allowed."""
        if host is None:
            return True
        name = _without_port(host).lower().rstrip(".")
        if name in self._names or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
