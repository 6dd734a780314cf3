"""The life of a daemon's process: limits, signals and the exit code."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

from croupier.model.errors import CroupierError
from croupier.model.printable import printable
from croupier.process.garbage import LongCollections, freeze_imports
from croupier.process.reload import ignore_hangups
from croupier.process.unhandled_errors import LoopErrors, log_grpc_errors

Main = Callable[[asyncio.Event], Awaitable[None]]

# The variable with the pid of a parent; the daemon gets SIGTERM when that process ends.
PARENT_VARIABLE = "CROUPIER_PARENT"

_PR_SET_PDEATHSIG = 1


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
    gc.callbacks.append(LongCollections())
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
