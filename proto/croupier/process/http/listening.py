"""Listening sockets on every address of a host."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Final

from croupier.model.errors import Unavailable
from croupier.net.address import Address

BACKLOG: Final = 128
# `localhost` has an IPv6 address on machines without IPv6, too.
_MISSING: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class Listening:
    """Sockets that listen. Connections wait in the backlog until they are accepted.

    Attributes:
        sockets: one for each address of the host.
        port: of all of them.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: list[socket.socket] = []

    @classmethod
    async def open(cls, address: Address) -> Listening:
        """Listen on `address`.

        Raises:
            Unavailable: if the port is taken or the host is not this machine's.
        """
        listening = cls(address.port)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            listening._bind_all(list(dict.fromkeys((each[0], each[4]) for each in found)))
        except OSError as error:
            listening.close()
            raise Unavailable(f"cannot listen on {address}: {error.strerror or error}") from error
        return listening

    async def first(self) -> None:
        """Wait until a connection waits."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        for each in self.sockets:
            loop.add_reader(each, arrived.set)
        try:
            await arrived.wait()
        finally:
            for each in self.sockets:
                loop.remove_reader(each)

    def close(self) -> None:
        """Stop listening; connections that wait are refused."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()

    def _bind_all(self, places: list[tuple[int, tuple[object, ...]]]) -> None:
        missing = OSError("the host has no address")
        for family, at in places:
            try:
                self._bind(family, (at[0], self.port, *at[2:]))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
        if not self.sockets:
            raise missing

    def _bind(self, family: int, at: tuple[object, ...]) -> None:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(at)
            made.listen(BACKLOG)
        except OSError:
            made.close()
            raise
        self.sockets.append(made)
        self.port = int(made.getsockname()[1])
