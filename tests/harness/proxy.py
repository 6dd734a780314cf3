"""A TCP proxy that stands in for a network: it can be cut, be slow, or lose everything.

Rule: a fault is between one client and one server, and who the client is, is found by whose
process holds the other end of the connection; so clients that are given a server's address by
others, as by NOT_LEADER, cannot get around it. In fair weather nobody is looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from croupier.net.address import Address

_CHUNK = 64 * 1024
_ESTABLISHED = "01"


class Weather(Enum):
    """What becomes of what is sent."""

    FAIR = "fair"
    CUT = "cut"  # connections are reset, and new ones refused
    BLACK_HOLE = "black hole"  # all is swallowed, and nobody is told


@dataclass(slots=True)
class Link:
    """Between one client and one server, both ways.

    Attributes:
        delay_s: by which everything is late.
        cleared: a black hole is over.
    """

    weather: Weather = Weather.FAIR
    delay_s: float = 0.0
    cleared: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_fair(self) -> bool:
        """Whether nothing is wrong."""
        return self.weather is Weather.FAIR and not self.delay_s


@dataclass(slots=True, eq=False)
class _Connection:
    """From one client, by its port.

    Attributes:
        client: whose it is; None while nobody has asked.
        link: what it goes by; None while that is fair and unknown.
        has_lost: something was swallowed, so it cannot go on.
    """

    port: int
    streams: list[asyncio.StreamWriter]
    client: str | None = None
    link: Link | None = None
    has_lost: bool = False

    def abort(self) -> None:
        for stream in self.streams:
            stream.transport.abort()


class Proxy:
    """Stands before one server, at `address`."""

    def __init__(
        self, server: Address, address: Address, pids: Callable[[], Mapping[int, str]]
    ) -> None:
        """`pids` says which client each process is; others are the client `` (the test)."""
        self.server, self.address = server, address
        self._pids = pids
        self._links: dict[str, Link] = {}
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        host, port = self.address.host, self.address.port
        self._listener = await asyncio.start_server(self._on_client, host, port)

    async def stop(self) -> None:
        """End every connection and stop listening."""
        assert self._listener is not None
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    def cut(self, client: str) -> None:
        """Reset a client's connections and refuse new ones."""
        self._link(client).weather = Weather.CUT
        self.reset(client)

    def swallow(self, client: str) -> None:
        """Lose what either side sends, from now on, while connections seem to stand."""
        self._link(client).weather = Weather.BLACK_HOLE
        self._link(client).cleared.clear()
        self._identify()

    def slow_down(self, client: str, delay_s: float) -> None:
        """Be late by so much, each way."""
        self._link(client).delay_s = delay_s
        self._identify()

    def reset(self, client: str) -> None:
        """Break a client's connections; it may come again."""
        self._identify()
        for connection in list(self._connections):
            if connection.client == client:
                connection.abort()

    def heal(self, client: str) -> None:
        """Fair weather; what was swallowed stays lost, so such connections are broken."""
        link = self._link(client)
        for connection in list(self._connections):
            if connection.link is link and connection.has_lost:
                connection.abort()
        link.weather, link.delay_s = Weather.FAIR, 0.0
        link.cleared.set()

    def _link(self, client: str) -> Link:
        return self._links.setdefault(client, Link())

    def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer.get_extra_info("peername")[1], [writer])
        self._connections.add(connection)
        try:
            if any(not link.is_fair for link in self._links.values()):
                self._identify()
            if connection.link is not None:
                if connection.link.weather is Weather.CUT:
                    return
                if connection.link.weather is Weather.BLACK_HOLE:
                    await connection.link.cleared.wait()
            answers, onward = await asyncio.open_connection(self.server.host, self.server.port)
            connection.streams.append(onward)
            await _both(_pump(reader, onward, connection), _pump(answers, writer, connection))
        except OSError:
            return
        finally:
            self._connections.discard(connection)
            connection.abort()

    def _identify(self) -> None:
        """Find out whose the connections are that nobody has asked about yet."""
        unknown = {each.port: each for each in self._connections if each.client is None}
        if not unknown:
            return
        inodes = _inodes(unknown)
        holders = {inode: name for pid, name in self._pids().items() for inode in _sockets_of(pid)}
        for port, connection in unknown.items():
            connection.client = holders.get(inodes.get(port, ""), "")
            connection.link = self._link(connection.client)


async def _both(*pumps: Coroutine[Any, Any, None]) -> None:
    """Run two pumps until one ends."""
    tasks = [asyncio.create_task(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            link = connection.link
            if link is not None and link.delay_s:
                await asyncio.sleep(link.delay_s)
            if link is not None and link.weather is Weather.BLACK_HOLE:
                connection.has_lost = True
                continue
            writer.write(data)
            await writer.drain()


def _inodes(ports: Iterable[int]) -> dict[int, str]:
    """The sockets of this machine that are connected from these ports."""
    wanted = set(ports)
    found: dict[int, str] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            port = int(local.rpartition(":")[2], 16)
            if port in wanted and state == _ESTABLISHED:
                found.setdefault(port, rest[5])
    return found


def _sockets_of(pid: int) -> list[str]:
    """Inodes of a process's sockets."""
    sockets = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(entry.readlink()).partition(":")
                if kind == "socket":
                    sockets.append(inode.strip("[]"))
    return sockets
