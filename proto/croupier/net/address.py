"""Addresses in the form HOST:PORT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from croupier.model.errors import InvalidRequest

MASTER_PORT: Final = 5050
MASTER_HTTP_PORT: Final = 5080
AGENT_HTTP_PORT: Final = 5081

_HOST = re.compile(r"[\w.:-]{1,255}")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port to listen on or connect to; a listener on port 0 gets a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int | None = None) -> Address:
        """Read `HOST:PORT` or `[IPV6]:PORT`, the port maybe by default; raises InvalidRequest."""
        text = text.strip()
        if text.startswith("["):
            host, bracket, port = text[1:].partition("]")
            if not bracket or (port and not port.startswith(":")):
                raise InvalidRequest(f"{text!r} is not [HOST]:PORT")
            port = port[1:]
        else:
            host, _, port = text.partition(":")
        if not port and default_port is not None:
            port = str(default_port)
        if not host or any(c.isspace() or c in ",/[]@" for c in host):
            raise InvalidRequest(f"{text!r} is not HOST:PORT")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise InvalidRequest(f"{text!r}: {port or 'nothing'!r} is not a port (0-65535)")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def check_http_address(text: str) -> str:
    """Return `text` if it can be the address of an agent's HTTP server, or is empty.

    Masters and browsers connect to it, so it names a host and a port, and no address that stands
    for another machine at each place. Raises InvalidRequest for others.
    """
    host = Address.parse(re.sub("^https?://", "", text)).host if text else ""
    if host and not _HOST.fullmatch(host):
        raise InvalidRequest(f"{host[:80]!r} is no host")
    try:
        address = ip_address(host)
    except ValueError:
        return text
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise InvalidRequest(f"{host} is no address of one machine")
    return text


DEFAULT_MASTER: Final = Address("127.0.0.1", MASTER_PORT)


def parse_addresses(text: str, default_port: int | None = None) -> tuple[Address, ...]:
    """Read addresses joined by commas, at least one; raises InvalidRequest if any is malformed."""
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidRequest("no address given (example: 127.0.0.1:5050)")
    return tuple(Address.parse(part, default_port) for part in parts)
