"""A TCP proxy that simulates network faults: cut, slow, or losing everything.

Rule: a fault is between one client and one server. The proxy identifies a client by the process
that owns the other end of the connection, so a client that was redirected cannot bypass it. Clients
are identified only while there is a fault.
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
    """The state of a network connection."""

    FAIR = "fair"
    CUT = "cut"  # connections are reset, and new ones refused
    BLACK_HOLE = "black hole"  # all data is lost silently


@dataclass(slots=True)
class Link:
    """The network between one client and one server, in both directions.

    Attributes:
        delay_s: added delay in each direction.
        cleared: set when a black hole ends.
    """

    weather: Weather = Weather.FAIR
    delay_s: float = 0.0
    cleared: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_fair(self) -> bool:
        """Return whether there is no fault."""
        return self.weather is Weather.FAIR and not self.delay_s


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection from a client, by its port.

    Attributes:
        client: its client; None until it is identified.
        link: the network it uses; None while there is no fault and it is unknown.
        has_lost: data was lost, so the connection cannot continue.
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
    """A proxy for one server, at `address`."""

    def __init__(
        self, server: Address, address: Address, pids: Callable[[], Mapping[int, str]]
    ) -> None:
        """Map processes to clients by `pids`; any other process is the test, client ''."""
        self.server, self.address = server, address
        self._pids = pids
        self._links: dict[str, Link] = {}
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Start to listen."""
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
        """Discard all data that either side sends from now on, without closing connections."""
        self._link(client).weather = Weather.BLACK_HOLE
        self._link(client).cleared.clear()
        self._identify()

    def slow_down(self, client: str, delay_s: float) -> None:
        """Delay data in each direction."""
        self._link(client).delay_s = delay_s
        self._identify()

    def reset(self, client: str) -> None:
        """Reset a client's connections; it may reconnect."""
        self._identify()
        for connection in list(self._connections):
            if connection.client == client:
                connection.abort()

    def heal(self, client: str) -> None:
        """End all faults; reset connections that lost data."""
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
        """Identify the clients of unidentified connections."""
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
    """Return the inodes of sockets that are connected from these ports."""
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
    """Return the inodes of a process's sockets."""
    sockets = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(entry.readlink()).partition(":")
                if kind == "socket":
                    sockets.append(inode.strip("[]"))
    return sockets
