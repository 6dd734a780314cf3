"""Health checks: by command inside the task, and by TCP and HTTP from the controller.

Agents run no checks, and a command on the controller's machine would not see the instance. So a
small shell script starts the program, runs the check, and ends the program with exit code 113
after too many failures in a row. The controller needs no answer of it: an instance that still runs
after the window has passed a check. The script needs `/bin/sh`, `sleep`, `date` and `kill` in the
image, and uses `timeout` if there is one.

A check of the controller has one deadline for everything, so one that hangs, or that answers byte
by byte, has failed when the deadline passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.apps.service.core.rules import Check, Health
from croupier.net.address import Address

UNHEALTHY: Final = 113
SCRIPT: Final = (Path(__file__).parent / "health_check.sh").read_text()
# The status line of an answer is not longer.
_LINE_BYTES: Final = 4096


def guarded(argv: Sequence[str], health: Health, stop_grace_s: float) -> tuple[str, ...]:
    """Return the command that runs `argv` with the check of `health` beside it."""
    return (
        "/bin/sh",
        "-c",
        SCRIPT,
        "health-check",
        str(max(0, round(health.grace_s))),
        f"{health.interval_s:g}",
        f"{health.timeout_s:g}",
        str(health.failures),
        f"{stop_grace_s:g}",
        health.command,
        *argv,
    )


async def probe(health: Health, host: str, port: int) -> tuple[bool, str]:
    """Check an instance; return whether it passed, and a text for people. Never raises."""
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(health.timeout_s):
            if health.check is Check.HTTP:
                return await _http(host, port, health.path, began)
            return await _tcp(host, port)
    except TimeoutError:
        return False, f"no answer within {health.timeout_s:g} s"
    except (OSError, ValueError) as error:
        return False, getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _tcp(host: str, port: int) -> tuple[bool, str]:
    _, writer = await asyncio.open_connection(host, port)
    _close(writer)
    return True, f"port {port} is open"


async def _http(host: str, port: int, path: str, began: float) -> tuple[bool, str]:
    reader, writer = await asyncio.open_connection(host, port, limit=_LINE_BYTES)
    try:
        target = Address(host, port)
        request = f"GET {path} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: croupier-service\r\n"
        writer.write(f"{request}Accept: */*\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
    finally:
        _close(writer)
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return False, "the answer is not HTTP"
    code = int(words[1])
    took_ms = (asyncio.get_running_loop().time() - began) * 1000
    return 200 <= code < 400, f"HTTP {code} in {took_ms:.0f} ms"


def _close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        writer.transport.abort()
