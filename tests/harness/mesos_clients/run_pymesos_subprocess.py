"""Processes by `pymesos.subprocess`, on agents: JOURNAL; the master is in MESOS_MASTER."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path

from pymesos.subprocess import PIPE, Popen, popen
from pymesos.subprocess.scheduler import ProcScheduler

from tests.harness.mesos_clients.work import Work


def begin() -> None:
    """Subscribe, as the first `Popen` would.

    The library does not wait for its id before it revives offers, and then fails by an assertion.
    """
    scheduler = Popen._scheduler = ProcScheduler()
    scheduler.start()
    atexit.register(scheduler.stop)
    deadline = time.monotonic() + 30
    while scheduler.driver.framework_id is None:
        if time.monotonic() > deadline:
            sys.exit("not subscribed after 30 s")
        time.sleep(0.01)


def main() -> None:
    work = Work(0, Path(sys.argv[1]))
    # The library writes a text to a pipe, which Python 3 refuses. Nothing else is changed.
    popen.Redirector._wakeup = lambda redirector: os.write(redirector._wakeup_fd, b"\0")
    begin()
    first = Popen(["sh", "-c", "cat; exit 3"], stdin=PIPE, stdout=PIPE, cpus=0.1, mem=32)
    out, _ = first.communicate(b"through an agent")
    work.note("ended", code=first.returncode, out=out.decode())
    # A signal is a message to the executor.
    second = Popen(["sleep", "600"], cpus=0.1, mem=32)
    while second.poll() is None:
        try:
            second.send_signal(signal.SIGTERM)
        except RuntimeError as error:
            work.note("not_yet", error=str(error))
        time.sleep(0.2)
    work.note("ended", code=second.returncode, out="")
    work.note("done")


if __name__ == "__main__":
    main()
