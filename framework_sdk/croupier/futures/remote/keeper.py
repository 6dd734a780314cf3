"""The process of a worker that talks to the executor, and restarts its child.

Rules: it runs none of the user's code, so it can always say which call a dead child was in, and
start another child. It hands the child one call at a time: a call that waits in the keeper has not
begun. It ends, with its child, when the executor's connection ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Final

from croupier.futures.remote import protocol

OUTPUT_TAIL: Final = 4096
EXIT_GRACE_S: Final = 3.0
MAX_IDLE_DEATHS: Final = 3


class Child:
    """The process that runs calls, as its keeper sees it.

    Attributes:
        running: number of the call that it runs; 0 if none.
        is_ready: whether its initializer has returned.
        known: functions that it has.
    """

    def __init__(self, pid: int, pipe: protocol.Pipe) -> None:
        self.pid, self.pipe = pid, pipe
        self.running = 0
        self.is_ready = False
        self.known: set[int] = set()
        self._output_from = _output_size()

    def output(self) -> str:
        """Return the last part of stderr since the child was started."""
        return _output_tail(self._output_from)


class Keeper:
    """Passes calls to the child one by one, and its results to the executor."""

    def __init__(self, link: socket.socket) -> None:
        self._link = protocol.Pipe(link)
        self._setup: tuple[int, bytes] | None = None
        self._functions: dict[int, bytes] = {}
        # Frames CALL and FORGET that wait for the child.
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        self._child: Child | None = None
        self._idle_deaths = 0
        self._wakeup, self._woken = socket.socketpair()
        self._wakeup.setblocking(False)
        self._woken.setblocking(False)

    def run(self) -> socket.socket | None:
        """Serve until the executor ends it; return the socket of the child, in the child."""
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            self._wait()
            if not self._link.fill():
                if self._child is not None:
                    with suppress(ProcessLookupError):
                        os.kill(self._child.pid, signal.SIGKILL)
                os._exit(1)
            for frame in self._link.frames():
                inherited = self._on_executor(*frame)
                if inherited is not None:
                    return inherited
            inherited = self._on_child_events()
            if inherited is not None:
                return inherited
            self._feed()
            self._link.flush()

    def _wait(self) -> None:
        poll = select.poll()
        pipes = [self._link] + ([self._child.pipe] if self._child else [])
        for pipe in pipes:
            poll.register(pipe.sock, select.POLLIN | (select.POLLOUT if pipe.has_output else 0))
        poll.register(self._wakeup, select.POLLIN)
        poll.poll()
        with suppress(BlockingIOError):
            self._wakeup.recv(1024)

    def _on_executor(self, kind: int, number: int, body: bytes) -> socket.socket | None:
        if kind == protocol.SETUP:
            self._setup = number, body
            return self._start_child()
        if kind == protocol.FUNCTION:
            self._functions[number] = body
        elif kind in (protocol.CALL, protocol.FORGET):
            self._waiting.append((kind, number, body))
        elif kind == protocol.TAKE_BACK:
            self._give_back()
        elif kind == protocol.STOP_CALL:
            self._stop_call(number)
        elif kind == protocol.EXIT:
            self._exit()
        return None

    def _start_child(self) -> socket.socket | None:
        """Fork a child. Return its socket in the child, None in the keeper."""
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for sock in (ours, self._wakeup, self._woken):
                sock.close()
            if self._child is not None:
                self._child.pipe.sock.close()
            os.close(self._link.sock.detach())
            return theirs
        theirs.close()
        self._child = Child(pid, protocol.Pipe(ours))
        assert self._setup is not None
        self._child.pipe.send(protocol.SETUP, *self._setup)
        return None

    def _on_child_events(self) -> socket.socket | None:
        child = self._child
        if child is None:
            return None
        # Asked first: what it wrote before it died is then read below.
        status = _status_of(child.pid)
        is_open = child.pipe.fill()
        for kind, number, body in child.pipe.frames():
            if kind == protocol.READY:
                if child.is_ready:
                    continue
                child.is_ready = True
            elif kind in (protocol.RESULT, protocol.ERROR):
                child.running = 0
                self._idle_deaths = 0
            self._link.send(kind, number, body)
        child.pipe.flush()
        if status is None and not is_open:
            status = _ended(child.pid)
        return None if status is None else self._on_death(child, status)

    def _on_death(self, child: Child, status: int) -> socket.socket | None:
        self._give_back()
        phase = "call" if child.running else "idle" if child.is_ready else "setup"
        report = {"status": status, "phase": phase, "output": child.output()}
        self._link.send(protocol.DIED, child.running, json.dumps(report).encode())
        child.pipe.sock.close()
        self._idle_deaths += 0 if child.running else 1
        if phase == "setup" or self._idle_deaths >= MAX_IDLE_DEATHS:
            self._child = None
            self._leave(1)
        return self._start_child()

    def _feed(self) -> None:
        """Hand the next call to a child that has none."""
        child = self._child
        while child and child.is_ready and not child.running and self._waiting:
            kind, number, body = self._waiting.popleft()
            if kind == protocol.FORGET:
                self._functions.pop(number, None)
                child.known.discard(number)
                child.pipe.send(protocol.FORGET, number)
                continue
            function = protocol.CALL_HEAD.unpack_from(body)[0]
            if function and function not in child.known:
                child.known.add(function)
                child.pipe.send(protocol.FUNCTION, function, self._functions[function])
            child.running = number
            child.pipe.send(protocol.CALL, number, body)

    def _give_back(self) -> None:
        calls = [number for kind, number, _ in self._waiting if kind == protocol.CALL]
        self._waiting = deque(frame for frame in self._waiting if frame[0] != protocol.CALL)
        self._link.send(protocol.GIVEN_BACK, 0, struct.pack(f"!{len(calls)}Q", *calls))

    def _stop_call(self, number: int) -> None:
        child = self._child
        if child is not None and child.running == number:
            os.kill(child.pid, signal.SIGKILL)
        self._waiting = deque(
            frame for frame in self._waiting if frame[0] != protocol.CALL or frame[1] != number
        )

    def _exit(self) -> None:
        if self._child is not None:
            self._child.pipe.sock.close()
            _ended(self._child.pid, EXIT_GRACE_S)
        self._leave(0)

    def _leave(self, code: int) -> None:
        deadline = time.monotonic() + EXIT_GRACE_S
        while self._link.has_output and time.monotonic() < deadline:
            select.select([], [self._link.sock], [], 0.1)
            self._link.flush()
        self._link.sock.close()
        os._exit(code)


def _status_of(pid: int) -> int | None:
    """Return the wait status of a child that has ended, else None."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return status if ended else None


def _ended(pid: int, grace_s: float = 1.0) -> int:
    """Wait for the end of a child, which is killed after the grace; return its wait status."""
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        status = _status_of(pid)
        if status is not None:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _output_size() -> int:
    with suppress(OSError):
        return os.fstat(2).st_size
    return 0


def _output_tail(begin: int) -> str:
    """Return the end of stderr, if that is a file, from the offset `begin`."""
    try:
        with open("/proc/self/fd/2", "rb") as output:  # noqa: PTH123
            size = output.seek(0, os.SEEK_END)
            output.seek(max(begin, size - OUTPUT_TAIL))
            return output.read(OUTPUT_TAIL).decode(errors="replace").strip()
    except OSError:
        return ""
