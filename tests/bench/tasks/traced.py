"""Runs a module, and notes when the points of a task's way through it are passed.

    python -m tests.bench.tasks.traced DIR MODULE [ARGUMENT...]

SIGUSR2 writes DIR/PID.json: a list of [time, point], by the monotonic clock that all processes of
the machine share. A point is a function with `>` at its begin or `<` at its end.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

POINTS = {
    "croupier.master": (
        "croupier.net.outbox:Outbox.take", "croupier.process.inbox:Inbox.put",
        "croupier.master.driver:Driver._decide", "croupier.master.driver:Driver._commit",
    ),
    "croupier.agent": (
        "croupier.net.outbox:Outbox.take", "croupier.agent.link:Link.on_message",
        "croupier.agent.driver:Driver._commit", "croupier.agent.supervisor:Supervisor.spawn",
        "croupier.agent.supervisor:Supervisor._on_start",
        "croupier.agent.link:Link.send_updates",
    ),
    "tests.bench.tasks.client_croupier": (
        "croupier.net.outbox:Outbox.take", "croupier.sdk.session:Session.on_message",
        "croupier.sdk.framework_calls:FrameworkCalls.submit",
        "croupier.sdk.framework_calls:FrameworkCalls.accept",
        "croupier.sdk.framework_calls:FrameworkCalls.demand",
        "croupier.sdk.dispatch:Dispatcher._serve_update",
    ),
}  # fmt: skip
BOTH_ENDS = ("_commit", "spawn", "submit", "accept", "demand", "_serve_update")

passed: list[tuple[float, str]] = []


def _wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    begin, end = f"{name} >", f"{name} <"
    is_end_alone = name.endswith("take")
    is_begin_alone = not is_end_alone and not name.endswith(BOTH_ENDS)

    def note(point: str) -> None:
        passed.append((time.monotonic(), point))

    @functools.wraps(function)
    async def wait(*args: Any, **options: Any) -> Any:
        if not is_end_alone:
            note(begin)
        try:
            return await function(*args, **options)
        finally:
            if not is_begin_alone:
                note(end)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        note(begin)
        try:
            return function(*args, **options)
        finally:
            if not is_begin_alone:
                note(end)

    return wait if inspect.iscoroutinefunction(function) else call


def watch(point: str) -> None:
    """Note when a method is called; a method that is no more is reported on standard error."""
    module, _, path = point.partition(":")
    owner, _, method = path.partition(".")
    found = getattr(import_module(module), owner)
    if method not in vars(found):
        print(f"traced: there is no {point}", file=sys.stderr)
        return
    setattr(found, method, _wrapped(path, vars(found)[method]))


def main(directory: str, module: str, *words: str) -> None:
    def write(*_: object) -> None:
        path = Path(directory, f"{os.getpid()}.json")
        path.with_suffix(".new").write_text(json.dumps(passed))
        path.with_suffix(".new").rename(path)
        passed.clear()

    for point in POINTS[module]:
        watch(point)
    signal.signal(signal.SIGUSR2, write)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
