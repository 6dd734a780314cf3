"""A directory for the PATH of shells, whose `croupier` commands are forks of a loaded interpreter.

Each command is a small program. It hands its words, directory, environment and standard streams to
the tests' process, passes on signals, and ends as the fork ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.harness.forked_start.popen import SCRIPTS

PROGRAM: Final = """#!{python} -ISB
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(link, [len(request).to_bytes(8, "big")], [0, 1, 2])
link.sendall(request)
answers = link.makefile()
pid = int(answers.readline() or "0")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    if pid and signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int(answers.readline() or "255")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def forked_commands() -> Iterator[Path]:
    """Serve the commands; yield their directory."""
    with tempfile.TemporaryDirectory(prefix="forked-") as name:
        folder, address = Path(name), f"{name}/socket"
        for script in map(Path, SCRIPTS):
            (folder / script.name).write_text(
                PROGRAM.format(python=sys.executable, address=address)
            )
            (folder / script.name).chmod(0o755)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(64)
        threading.Thread(target=_accept, args=[listener], daemon=True).start()
        try:
            yield folder
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def _accept(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=[connection], daemon=True).start()


def _serve(connection: socket.socket) -> None:
    """Run one command, and answer with its pid and its exit code."""
    with connection:
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        size = int.from_bytes(head, "big")
        words, cwd, env = json.loads(connection.recv(size, socket.MSG_WAITALL))
        program = next(script for script in SCRIPTS if Path(script).name == Path(words[0]).name)
        stdin, stdout, stderr = descriptors
        try:
            process = subprocess.Popen(
                [program, *words[1:]], cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        with suppress(OSError):
            connection.sendall(f"{process.pid}\n".encode())
        code = process.wait()
        with suppress(OSError):
            connection.sendall(f"{code}\n".encode())
