"""A TCP proxy that stands in for a network: it can be cut, be slow, or lose everything.

Rule: a fault is between one client and one server, and who the client is, is found by whose
process holds the other end of the connection; so clients that are given a server's address by
others, as by NOT_LEADER, cannot get around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from croupier.rpc.address import Address

_CHUNK = 64 * 1024


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
    """

    weather: Weather = Weather.FAIR
    delay_s: float = 0.0
    cleared: asyncio.Event = field(default_factory=asyncio.Event)
    streams: set[asyncio.StreamWriter] = field(default_factory=set)


class Proxy:
    """Stands before one server, at `address`."""

    def __init__(self, server: Address, address: Address, pids: Callable[[], Mapping[int, str]]):
        """`pids` says which client each process is; others are the client `` (the test)."""
        self.server, self.address = server, address
        self._pids = pids
        self._links: dict[str, Link] = {}
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

    def link(self, client: str) -> Link:
        """The way from `client` to this server."""
        return self._links.setdefault(client, Link())

    def cut(self, client: str) -> None:
        """Reset its connections and refuse new ones."""
        link = self.link(client)
        link.weather = Weather.CUT
        self.reset(client)

    def swallow(self, client: str) -> None:
        """Lose what either side sends, from now on, while connections seem to stand."""
        link = self.link(client)
        link.weather = Weather.BLACK_HOLE
        link.cleared.clear()

    def slow_down(self, client: str, delay_s: float) -> None:
        """Be late by so much, each way."""
        self.link(client).delay_s = delay_s

    def reset(self, client: str) -> None:
        """Break its connections; it may come again."""
        for writer in list(self.link(client).streams):
            writer.transport.abort()

    def heal(self, client: str | None = None) -> None:
        """Fair weather for a client, or for all. What was swallowed stays lost, as TCP would
        not allow: so such connections are broken."""
        for name in [client] if client is not None else list(self._links):
            link = self.link(name)
            if link.weather is Weather.BLACK_HOLE:
                self.reset(name)
            link.weather, link.delay_s = Weather.FAIR, 0.0
            link.cleared.set()

    def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        link = self.link(self._client_at(port))
        onward: asyncio.StreamWriter | None = None
        try:
            if link.weather is Weather.CUT:
                return
            while link.weather is Weather.BLACK_HOLE:
                await link.cleared.wait()
            answers, onward = await asyncio.open_connection(self.server.host, self.server.port)
            link.streams |= {writer, onward}
            forth = asyncio.create_task(_pump(reader, onward, link))
            back = asyncio.create_task(_pump(answers, writer, link))
            try:
                await asyncio.wait([forth, back], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in (forth, back):
                    pump.cancel()
                await asyncio.gather(forth, back, return_exceptions=True)
        except OSError:
            return
        finally:
            for stream in (writer, onward):
                if stream is not None:
                    link.streams.discard(stream)
                    stream.transport.abort()

    def _client_at(self, port: int) -> str:
        """Whose the connection from `port` is."""
        inode = _inode_of(port)
        if inode is None:
            return ""
        for pid, name in self._pids().items():
            if _holds(pid, inode):
                return name
        return ""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            if link.delay_s:
                await asyncio.sleep(link.delay_s)
            if link.weather is Weather.BLACK_HOLE:
                continue
            writer.write(data)
            await writer.drain()


def _inode_of(port: int) -> str | None:
    """The socket on this machine that is bound to `port` and connected from there."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "01":
                return fields[9]
    return None


def _holds(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    try:
        return any(str(entry.readlink()) == wanted for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
