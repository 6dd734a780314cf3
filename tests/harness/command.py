"""Running the `croupier` command as a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return this environment without the variables that are flags of commands."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("CROUPIER_")}
    return kept | more


@asynccontextmanager
async def started(*argv: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `croupier ARGV` as a child with pipes; kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "croupier.ctl",
        *argv,
        # The process prints its stack when it is aborted.
        env=environment(PYTHONFAULTHANDLER="1", **env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process, timeout_s: float = 30.0) -> Ended:
    """Wait for the end of `process`.

    Raises:
        AssertionError: if it does not end in time; the process prints its stack.
    """
    reading = asyncio.create_task(process.communicate())
    done, _ = await asyncio.wait([reading], timeout=timeout_s)
    if not done:
        process.send_signal(signal.SIGABRT)
    out, err = await asyncio.wait_for(reading, 30)
    assert done, f"still running after {timeout_s:g} s: {err.decode()}"
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def line(process: asyncio.subprocess.Process, timeout_s: float = 30.0) -> str:
    """Wait for the next line that `process` prints, and return it."""
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        return (await process.stdout.readline()).decode()


async def croupier(*argv: str, timeout_s: float = 30.0, **env: str) -> Ended:
    """Run `croupier ARGV` to its end."""
    async with started(*argv, **env) as process:
        return await ended(process, timeout_s)
