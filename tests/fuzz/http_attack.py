"""Attacks over HTTP on every route: broken methods, targets, headers and bodies."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Final
from urllib.parse import quote

from croupier.net.address import Address
from tests.fuzz.attack import Attack, Problem
from tests.fuzz.cases import Case
from tests.fuzz.wire_bytes import damaged

# Requests on one connection.
MOST_REQUESTS: Final = 20
CONNECT_S: Final = 20.0
READ_S: Final = 0.1
READ_BYTES: Final = 65_536
_DAMAGED: Final = 0.2
_TAME: Final = 0.5

# A method and the template of a path, such as `/output/{task_id}`.
Route = tuple[str, str]

_METHODS: Final = (
    "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
    "get", "", "G\0T", "GET GET", "A" * 9_000, "\x16\x03\x01", "PRI",
)  # fmt: skip
_VERSIONS: Final = ("HTTP/1.1",) * 8 + ("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.1.1", "", "x")
_QUERIES: Final = (
    "", "", "?offset=0", "?offset=-1", "?offset=99999999999999999999", "?offset=1e3", "?follow=1",
    "?offset=0&offset=1&follow=2", "?" + "a=b&" * 500, "?%00=%ff", "?token=crp_0_x", "#x",
    "?expires=1", "?expires=0&signature=" + "0" * 64, "?access_token=x",
)  # fmt: skip
_TARGETS: Final = (
    "", "/", "//", "/..", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/../healthz",
    "http://127.0.0.1/metrics", "*", "/\0", "/%00", "/" + "a" * 9_000, "/" + "a/" * 2_000,
    "metrics", "/metrics/", "/metrics%0d%0aX:1", "/é", "//evil/metrics", "/output/a/b",
    "/output/a/b/stdout/c",
)  # fmt: skip
_HEADERS: Final = (
    "Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999",
    "Content-Length: 1, 2", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: x", "Expect: 100-continue", "Connection: close", "Connection: upgrade",
    "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Upgrade: h2c", "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Version: 13", "Range: bytes=0-", "Range: bytes=-1,5-2", "Accept-Encoding: gzip",
    "Accept: " + "a," * 500, "Cookie: " + "a=b;" * 1_000, "Authorization: Bearer x",
    "Authorization: Bearer \0", "Authorization: Basic eDp5", "Authorization", ": x", " folded: x",
    "X: " + "y" * 9_000, "X\0: y", "é: é", "Content-Type: multipart/form-data; boundary=x",
    "Content-Encoding: gzip", "Content-Encoding: br", "If-None-Match: *", "X-Forwarded-For: 1",
)  # fmt: skip
_TAME_HEADERS: Final = (
    "Range: bytes=0-", "Range: bytes=-1,5-2", "Accept-Encoding: gzip", "Accept: " + "a," * 500,
    "Cookie: " + "a=b;" * 1_000, "Authorization: Bearer x", "Authorization: Basic eDp5",
    "If-None-Match: *", "X-Forwarded-For: 1", "Connection: keep-alive", "Upgrade: h2c",
)  # fmt: skip
_HOSTS: Final = ("", "evil.example", "localhost:1:2", "[::1", "[::1]:x", "127.0.0.1\0", "a" * 5_000)
_BODIES: Final = (
    b"", b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"FFFFFFFFFFFFFFFFF\r\n", b"-1\r\n\r\n",
    b"5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n", b"\x1f\x8b\x08\0" + bytes(50), b"\0" * 5_000,
)  # fmt: skip
# Answers of a daemon whose handler raised; 503 says that it is busy or not ready.
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})")


class HttpAttack(Attack):
    """Connections with some requests each."""

    def __init__(self, daemon: str, address: Address, routes: list[Route], seed: int) -> None:
        super().__init__(f"http of {daemon}", seed)
        self._address, self._routes = address, routes

    @property
    def target(self) -> str:
        """The daemon that runs the HTTP server."""
        return self.name

    def accepts(self, target: str) -> bool:
        """Return whether the case is for this daemon."""
        return target == self.name

    async def run(self, case: Case) -> None:
        """Send requests on one connection."""
        # After a malformed request the daemon closes the connection.
        is_tame = self.rng.random() < _TAME
        count = self.rng.randint(1, MOST_REQUESTS)
        data = b"".join(self._tame() if is_tame else self._request() for _ in range(count))
        if not is_tame and self.rng.random() < _DAMAGED:
            data = damaged(data, self.rng)
        case.sent.append(data)
        self.sent += count if is_tame else 1
        await self._exchange(data, is_slow=self.rng.random() < 0.1)

    async def replay(self, case: Case) -> None:
        """Send the bytes of a case."""
        for data in case.sent:
            self.sent += 1
            await self._exchange(data, is_slow=False)

    async def _exchange(self, data: bytes, *, is_slow: bool) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    self._address.host, self._address.port
                )
        except OSError as error:
            self.answers[type(error).__name__] += 1
            return
        try:
            if is_slow:
                half = len(data) // 2
                writer.write(data[:half])
                await asyncio.sleep(READ_S)
                data = data[half:]
            writer.write(data)
            await self._read(reader)
        except OSError:
            self.answers["reset"] += 1
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        answer = b""
        try:
            async with asyncio.timeout(READ_S):
                while len(answer) < READ_BYTES and (more := await reader.read(READ_BYTES)):
                    answer += more
        except TimeoutError:
            pass
        for status in _STATUS.findall(answer):
            self.answers[status.decode()] += 1
            if status == b"500":
                raise Problem(f"{self.name} answered 500")

    def _tame(self) -> bytes:
        """Return a well-formed request for anything."""
        path = quote(self._path(), safe="/%")
        query = quote(self.rng.choice(_QUERIES).partition("#")[0], safe="?=&%")
        headers = self.rng.choices(_TAME_HEADERS, k=self.rng.choice((0, 1, 3)))
        method = self.rng.choice(("GET", "GET", "HEAD", "POST", "DELETE", "OPTIONS"))
        lines = [
            f"{method} /{path.lstrip('/')}{query} HTTP/1.1",
            f"Host: {self._address}",
            *headers,
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def _request(self) -> bytes:
        rng = self.rng
        method = rng.choice(_METHODS) if rng.random() < 0.4 else "GET"
        lines = [f"{method} {self._path()}{rng.choice(_QUERIES)} {_version(rng)}"]
        if rng.random() < 0.9:
            lines.append(f"Host: {self._address if rng.random() < 0.8 else rng.choice(_HOSTS)}")
        few = rng.choice((0, 0, 1, 2, 5)) if rng.random() < 0.98 else 300
        lines += rng.choices(_HEADERS, k=few)
        end = "\r\n" if rng.random() < 0.97 else "\n"
        head = end.join([*lines, "", ""]).encode()
        return head + (rng.choice(_BODIES) if few else b"")

    def _path(self) -> str:
        rng = self.rng
        if rng.random() < 0.25:
            return rng.choice(_TARGETS)
        _, path = rng.choice(self._routes)
        return re.sub(r"\{(\w+)[^}]*\}", lambda match: self._part(match[1]), path)

    def _part(self, name: str) -> str:
        if name == "stream" and self.rng.random() < 0.8:
            return self.rng.choice(("stdout", "stderr"))
        text = self.values.text(name)[:2_000]
        return quote(text, safe="") if self.rng.random() < 0.7 else text


def _version(rng: random.Random) -> str:
    return rng.choice(_VERSIONS)
