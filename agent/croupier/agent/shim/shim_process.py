"""A shim that the supervisor watches, and the signals that it is sent."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from signal import SIGCONT, SIGUSR1, Signals, pidfd_send_signal

# A shim gives itself 10 s to end everything; after this it is killed, and the rest swept up.
KILL_S = 15.0


@dataclass(slots=True)
class Watched:
    """A shim, known by a descriptor that can be no other process's.

    Attributes:
        program: for the words of a failure; empty if it was adopted.
        is_child: whether it has to be reaped.
        pid: of the task's process; 0 until it has started.
        failed: whether it was reported that the process could not be started.
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

    @property
    def owes(self) -> bool:
        """Whether it is to say something soon: how the start went, or that it has ended."""
        return self.kill_at is not None or not (self.pid or self.failed)

    def is_overdue(self, now: float) -> bool:
        """Whether it was told to end its task, and had the time that this may take."""
        return self.kill_at is not None and now >= self.kill_at

    def end(self, now: float) -> None:
        """Have it end all that descends from its task."""
        if self.kill_at is None:
            self.kill_at = now + KILL_S
        self.send(SIGUSR1)

    def send(self, number: Signals) -> None:
        """Send a signal, which it hears even if its task has stopped it; it may have ended."""
        with suppress(ProcessLookupError):
            pidfd_send_signal(self.pidfd, number)
            pidfd_send_signal(self.pidfd, SIGCONT)
