"""A real daemon that also notes long steps of its event loop.

    python -m tests.fuzz.daemon STEPS master|agent FLAGS...

The routes of its HTTP server are noted in a file beside STEPS. Each callback that uses the
processor for longer than `LONG_S` is a line of STEPS. Time of the thread is measured, not of the
clock, so a busy machine makes no step long.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from asyncio import events
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from croupier.agent import __main__ as agent
from croupier.master import __main__ as master
from croupier.process.http.listening import Listening
from croupier.process.http.server import HttpServer

LONG_S: Final = 0.02
SCHEDULER: Final = "/api/v1/scheduler"
_MAIN: Final[dict[str, Callable[[], None]]] = {"master": master.main, "agent": agent.main}


def note_steps(path: Path) -> None:
    """Make every event loop of this process note long steps in a file."""
    run: Any = events.Handle._run
    file = path.open("a", buffering=1)

    def timed(handle: Any) -> None:
        callback = handle._callback
        began = time.thread_time()
        run(handle)
        took_s = time.thread_time() - began
        if took_s > LONG_S:
            line = {"at": time.time(), "seconds": round(took_s, 4), "what": _name_of(callback)}
            file.write(json.dumps(line) + "\n")

    events.Handle._run = timed  # type: ignore[method-assign, assignment]


def note_collections(path: Path) -> None:
    """Note long collections of garbage in a file; they are a part of some step."""
    file = path.open("a", buffering=1)
    began = 0.0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        now = time.thread_time()
        if phase == "start":
            began = now
        elif now - began > LONG_S:
            what = f"garbage of generation {info['generation']}"
            line = {"at": time.time(), "seconds": round(now - began, 4), "what": what}
            file.write(json.dumps(line) + "\n")

    gc.callbacks.append(note)


def note_routes(path: Path) -> None:
    """Make the HTTP servers of this process load at once, and note their routes in files."""
    serve: Any = HttpServer.serve

    async def noted(server: HttpServer, listening: Listening) -> None:
        await serve(server, listening)
        assert server._runner.app is not None
        routes = server._runner.app.router.routes()
        found = [[route.method, route.resource.canonical] for route in routes if route.resource]
        is_gateway = any(route == ["POST", SCHEDULER] for route in found)
        place = path.with_suffix(".gateway") if is_gateway else path
        place.write_text(json.dumps({"port": listening.port, "routes": found}))

    async def at_once(_: Listening) -> None:
        """Wait for no connection."""

    HttpServer.serve = noted  # type: ignore[method-assign, assignment]
    Listening.first = at_once  # type: ignore[method-assign, assignment]


def _name_of(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine: Any = owner.get_coro()
        return f"{coroutine.__qualname__} {[str(frame) for frame in owner.get_stack(limit=3)]}"
    return str(getattr(callback, "__qualname__", callback))


def main() -> None:
    """Run a daemon until it ends."""
    steps, name, *flags = sys.argv[1:]
    note_steps(Path(steps))
    note_collections(Path(steps))
    note_routes(Path(steps).with_suffix(".routes"))
    sys.argv = [f"croupier-{name}", *flags]
    _MAIN[name]()


if __name__ == "__main__":
    main()
