"""The loaded interpreter, seen from the process of the tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.harness.forked_start.server import LENGTH, PADDING, received

SERVER: Final = "tests.harness.forked_start.server"
ANSWER_S: Final = 60.0


class Template:
    """A process that forks itself on request; its forks are children of this process."""

    def __init__(self, ours: socket.socket | None = None) -> None:
        """Start the process, unless it runs already: then `ours` is connected to it."""
        self._process: subprocess.Popen[bytes] | None = None
        if ours is None:
            ours, its = socket.socketpair()
            with its:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", SERVER, str(its.fileno()), PADDING],
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                )
        ours.settimeout(ANSWER_S)
        self._socket, self._lock = ours, threading.Lock()

    def fork(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str],
        descriptors: Sequence[int],
        *,
        is_session: bool,
    ) -> int:
        """Run the module `argv[0]` in a fork, and return its pid.

        Raises:
            OSError: if its directory cannot be entered, or the interpreter does not answer.
        """
        if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 - as Popen says it
            raise FileNotFoundError(2, "No such file or directory", cwd)
        request = json.dumps([argv, cwd or str(Path.cwd()), dict(env), is_session]).encode()
        with self._lock:
            socket.send_fds(self._socket, [LENGTH.pack(len(request))], descriptors)
            self._socket.sendall(request)
            (pid,) = LENGTH.unpack(received(self._socket, LENGTH.size))
        return int(pid)

    def close(self) -> None:
        """End the interpreter."""
        self._socket.close()
        if self._process is None:
            return
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
