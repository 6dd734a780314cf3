"""A process of the cluster under test: started, signalled and ended by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

END_S = 15.0


class Daemon:
    """A program that runs all the time, except during faults.

    Attributes:
        down: a fault prevents it from running.
        may_end: a fault permitted it to exit, and the cluster was not whole since then.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        """Run nothing before `start`; the output goes to `log`."""
        self.name, self.argv, self.log = name, list(argv), log
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._read = 0
        self.down = self.may_end = False

    @property
    def pid(self) -> int:
        """Return the pid of the last process started; 0 if none was."""
        return 0 if self._process is None else self._process.pid

    @property
    def runs(self) -> bool:
        """Return whether the process exists; it may be stopped."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process unless it runs."""
        self.down = False
        if not self.runs:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=self._environment, cwd=self.log.parent,
                )  # fmt: skip

    def kill(self) -> None:
        """Send SIGKILL and reap the process."""
        self.down = True
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)

    def stop(self) -> None:
        """Send SIGSTOP."""
        if self.runs:
            self._stopped = True
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT if the process was stopped."""
        if self._stopped and self.runs:
            os.kill(self.pid, signal.SIGCONT)
        self._stopped = False

    def end(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End the process, by force if needed; return the exit code, None if it never ran."""
        if self._process is None:
            return None
        self.resume()
        if self.runs:
            self._process.send_signal(number)
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(END_S)

    def new_complaints(self) -> list[str]:
        """Return lines with tracebacks that were logged since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._read)
            said = log.read()
        self._read += len(said)
        lines = said.decode(errors="replace").splitlines()
        return [line for line in lines if "Traceback" in line or '"exception"' in line]
