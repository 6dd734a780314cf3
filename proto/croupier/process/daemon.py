"""The life of a daemon's process: limits, signals, unhandled errors, reload and the exit code."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, Generic, TypeVar

from croupier.model.errors import CroupierError
from croupier.model.log_throttle import LogThrottle
from croupier.model.printable import printable
from croupier.net.task_scope import end
from croupier.process.garbage import LONG_COLLECTIONS, freeze_imports
from croupier.process.logging import get_logger

Main = Callable[[asyncio.Event], Awaitable[None]]

# The variable with the pid of a parent; the daemon gets SIGTERM when that process ends.
PARENT_VARIABLE = "CROUPIER_PARENT"

_PR_SET_PDEATHSIG = 1
# Unhandled errors of one kind are one line in this time.
EVERY_S: Final = 60.0
_log = get_logger("croupier.loop")
_grpc_log = get_logger("croupier.grpc")
ConfigT = TypeVar("ConfigT")
_reload_log: Final = get_logger("croupier.reload")


def run_daemon(name: str, main: Main) -> int:
    """Run `main` with an event that SIGTERM and SIGINT set; return the exit code.

    A CroupierError is one line on stderr and exit code 1. A second signal ends the process, and
    SIGHUP does not.
    """
    ignore_hangups()
    raise_file_limit()
    # Inherited from a parent that ignores SIGCHLD, it would prevent waits for children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log_grpc_errors()
    freeze_imports()
    gc.callbacks.append(LONG_COLLECTIONS)
    end_with_parent()
    try:
        asyncio.run(_run(main))
    except CroupierError as error:
        print(f"{name}: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(main: Main) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrors())

    def on_signal(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await main(stop)


def raise_file_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit: each peer takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def end_with_parent() -> None:
    """Make the kernel send SIGTERM when the parent that `CROUPIER_PARENT` names ends.

    Wait until that parent closes the pipe that is stdin: then it has made the daemon's files. If it
    has ended already, raise SIGTERM now. If the variable is unset, do nothing.
    """
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if str(os.getppid()) != parent:
        signal.raise_signal(signal.SIGTERM)
    os.read(0, 1)


class LoopErrors:
    """An exception handler of a loop; asyncio would print each error with its traceback."""

    def __init__(self) -> None:
        self._throttle = LogThrottle(EVERY_S)

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error that no task handled."""
        raised, message = context.get("exception"), str(context.get("message", ""))
        error = raised if isinstance(raised, BaseException) else None
        kind = "" if error is None else type(error).__name__
        if self._throttle.is_due((kind, message[:80]), loop.time()):
            _log.error(
                "unhandled_error",
                message=message[:400],
                kind=kind,
                not_logged=self._throttle.take_suppressed(),
                exc_info=error,
            )


def log_grpc_errors() -> None:
    """Log what gRPC's Python code logs, from now on."""
    logger = logging.getLogger("grpc")
    logger.propagate = False
    logger.handlers[:] = [GrpcErrors()]


class GrpcErrors(logging.Handler):
    """Logs the errors that gRPC logs.

    Rule: nothing that a peer has sent is logged. gRPC would print a traceback for each message
    that it cannot parse, and a peer can send many.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._throttle = LogThrottle(EVERY_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line without the text of the exception, which may quote a message."""
        error = record.exc_info[1] if record.exc_info else None
        kind = "" if error is None else type(error).__name__
        message = record.getMessage()[:200]
        if self._throttle.is_due((kind, message), time.monotonic()):
            not_logged = self._throttle.take_suppressed()
            _grpc_log.warning("grpc_error", message=message, kind=kind, not_logged=not_logged)


class Reloader(Generic[ConfigT]):
    """Applies settings that can change while a daemon runs, when SIGHUP arrives.

    A configuration that cannot be read, or is not valid, changes nothing. The log names the
    settings that were taken, and the others, which need a restart.
    """

    def __init__(
        self,
        config: ConfigT,
        read: Callable[[], ConfigT],
        takes: Mapping[str, Callable[[ConfigT], object]],
    ) -> None:
        """Prepare; `start` listens for signals.

        `read` returns the present configuration, in a thread, or raises; `takes` are by the names
        of fields that can change.
        """
        self._running, self._read, self._takes = settings(config), read, takes
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Reload at each SIGHUP from now on."""
        self._task = asyncio.create_task(self._run(), name="reload")
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def stop(self) -> None:
        """Ignore SIGHUP from now on."""
        if self._task is not None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            ignore_hangups()
            await end(self._task)

    async def reload(self) -> None:
        """Read the configuration again, and apply the settings that can change now."""
        try:
            config = await asyncio.to_thread(self._read)
        except Exception as error:
            _reload_log.error("config_not_reloaded", error=str(error))
            return
        now = settings(config)
        changed = [name for name, value in now.items() if value != self._running[name]]
        taken = [name for name in changed if name in self._takes]
        left = [flag(name) for name in changed if name not in taken]
        # Before a new log level hides it.
        _reload_log.info("config_reloaded", taken=[flag(name) for name in taken])
        if left:
            _reload_log.warning("restart_needed", settings=left)
        for take in {self._takes[name] for name in taken}:
            take(config)
        self._running |= {name: now[name] for name in taken}

    async def _run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload()


def settings(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration by field name, those of its groups of flags too."""
    found: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        # Groups of flags have no name of their own.
        is_group = is_dataclass(value) and type(value).__name__.endswith("Flags")
        found |= settings(value) if is_group else {field.name: value}
    return found


def flag(name: str) -> str:
    """Return the flag of a field."""
    return "--" + name.replace("_", "-")


def ignore_hangups() -> None:
    """Ignore SIGHUP; programs that this process starts do not."""
    signal.signal(signal.SIGHUP, lambda *_: None)
