"""A shim that the supervisor watches, and the signals to it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from signal import SIGCONT, SIGTERM, SIGUSR1, pidfd_send_signal
from typing import Final

from croupier.agent.shim.waiting import WaitingShim

# A shim takes up to 10 s to end everything. After this time it is killed itself.
KILL_S = 15.0
# A shim passes on to its task the signal of a number by the real-time signal that is so much above.
PASS_ON: Final = 48


@dataclass(slots=True)
class ShimProcess:
    """A shim, known by a pidfd, which never names another process.

    Attributes:
        program: for error messages; empty if the shim was adopted.
        search_path: the task's PATH, where the program was looked for.
        is_own_user: whether the task has a uid of its own; False if the shim was adopted.
        is_child: whether the shim must be reaped.
        pid: the pid of the task's process; 0 until it has started.
        failed: whether the failure of the start was reported.
        waiting: the shim, if it runs other tasks later. Such a shim gets no signal for the task
            before it has reported the start.
        kill_at: when the shim itself is killed, on the loop's clock; None: it need not end.
    """

    run: str
    shim: int
    pidfd: int
    program: str = ""
    is_child: bool = True
    pid: int = 0
    failed: bool = False
    kill_at: float | None = None
    is_own_user: bool = False
    search_path: str = ""
    waiting: WaitingShim | None = None
    _early: list[int] = field(default_factory=list)

    def end(self, now: float) -> None:
        """Ask the shim to kill all that descends from its task."""
        if self.kill_at is None:
            self.kill_at = now + KILL_S
        self.send(SIGUSR1)

    def started(self, pid: int) -> None:
        """Note the start, and send the signals that waited for it."""
        self.pid = pid
        for number in self._early:
            self.send(number)
        self._early.clear()

    def send(self, number: int) -> None:
        """Send a signal, and SIGCONT: the task may have stopped its shim. It may have ended."""
        if (
            self.waiting is not None
            and not self.pid
            and (number in (SIGTERM, SIGUSR1) or number > PASS_ON)
        ):
            self._early.append(number)
            number = SIGCONT
        with suppress(ProcessLookupError):
            pidfd_send_signal(self.pidfd, number)
            pidfd_send_signal(self.pidfd, SIGCONT)
