"""The address at which workers reach the executor."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from croupier.sdk import InvalidRequest

_DEFAULT_MASTER: Final = "127.0.0.1:5050"


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the executor listens, and the host that workers connect to.

    Attributes:
        listen: the address of an interface; empty for all.
        port: 0 for any that is free.
    """

    host: str
    listen: str
    port: int


def reach_of(address: str | None, listen: str | None, master: str | None) -> Reach:
    """Return where to listen: by default on the interface that leads to the master.

    Raises:
        InvalidRequest: if an address cannot be read.
    """
    host, port = _split(address) if address else (_way_to(master), 0)
    return Reach(host, host if listen is None else listen, port)


def _split(address: str) -> tuple[str, int]:
    """Read HOST, HOST:PORT, [IPV6] or [IPV6]:PORT."""
    text = address.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or _is_ip(text):
        host, port = text, "0"
    try:
        number = int(port)
    except ValueError:
        number = -1
    host = host.removeprefix("[").removesuffix("]")
    if not host or not 0 <= number <= 65535:
        raise InvalidRequest(f"address must be HOST or HOST:PORT, not {address!r}")
    if _is_any(host):
        raise InvalidRequest(
            f"workers cannot connect to {host}: give a name or an address, and listen={host!r}"
        )
    return host, number


def _way_to(master: str | None) -> str:
    """Return this machine's address on the way to the master."""
    first = (master or os.environ.get("CROUPIER_MASTER") or _DEFAULT_MASTER).split(",")[0].strip()
    host = first.rpartition(":")[0] or first
    host = host.removeprefix("[").removesuffix("]")
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            found: str = probe.getsockname()[0]
            return found
    except OSError:
        return "127.0.0.1"


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_any(host: str) -> bool:
    return _is_ip(host) and ip_address(host).is_unspecified
