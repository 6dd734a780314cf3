"""The loaded interpreter: imports Croupier's programs, and forks itself for each request.

It has one thread and opens nothing, so that forks are safe. A fork becomes a sibling of this
process, a child of the tests' process, which can wait for it.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

LENGTH: Final = struct.Struct("!Q")
# The last argument of this process: space for the command lines of forks.
PADDING: Final = "-" * 32_768
CLONE_PARENT: Final = 0x8000
SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}
# What `fork_spawn` can follow.
SPAWNED: Final = {"file_actions", "setpgroup", "setsigdef"}
LOADED: Final = ("croupier.agent", "croupier.ctl", "croupier.master", "croupier.process")
# Modules that need an extra, or do something when they are imported.
LEFT_OUT: Final = (".__main__", ".oidc", ".plots", ".otel")


def received(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes.

    Raises:
        EOFError: if the other side has closed.
    """
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("closed")
        data += part
    return data


def load() -> None:
    """Import all modules of the programs, those of commands in the order of `croupier` itself."""
    importlib.import_module("croupier.ctl.app").load_commands()
    for root in LOADED:
        package = importlib.import_module(root)
        for found in pkgutil.walk_packages(package.__path__, f"{root}."):
            if not any(part in found.name for part in LEFT_OUT):
                importlib.import_module(found.name)


def fork() -> int:
    """Fork this process as a child of its parent; return 0 in the fork."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    flags = CLONE_PARENT | signal.SIGCHLD
    pid: int = libc.syscall(SYS_CLONE[os.uname().machine], flags, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    elif pid < 0:
        raise OSError(ctypes.get_errno(), "clone failed")
    return pid


def serve(connection: socket.socket) -> NoReturn:
    """Fork for each request until the tests' process closes the connection."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
        if not head:
            os._exit(0)
        head += received(connection, LENGTH.size - len(head))
        request = json.loads(received(connection, *LENGTH.unpack(head)))
        pid = fork()
        if pid == 0:
            os._exit(become(descriptors, *request))
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(LENGTH.pack(pid))


def become(
    descriptors: list[int], argv: list[str], cwd: str, env: dict[str, str], is_session: bool
) -> int:
    """Run a module as a program; return its exit code."""
    if is_session:
        os.setsid()
    # They are above 2, because this process has all standard streams.
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.closerange(3, max(descriptors) + 64)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    match argv[:2]:
        case ["croupier.ctl", "service"]:
            fork_popen()
        case ["croupier.ctl", "local"]:
            fork_spawn()
    set_title(argv)
    renew_streams(is_unbuffered="PYTHONUNBUFFERED" in env)
    if env.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.argv = ["", *argv[1:]]
    return run(argv[0])


def fork_popen() -> None:
    """Fork the programs that this one starts by `Popen`, from a loaded interpreter, its child."""
    from tests.harness.forked_start.popen import Forks
    from tests.harness.forked_start.template import Template

    ours, its = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        serve(its)
    its.close()
    Forks(Template(ours)).install()


def fork_spawn() -> None:
    """Fork the daemons that this program spawns from itself, while it has one thread."""
    spawn: Any = os.posix_spawn

    def forked(path: str, argv: Sequence[str], env: Mapping[str, str], **options: Any) -> int:
        is_daemon = list(argv[:2]) == [sys.executable, "-m"] and argv[2] in LOADED
        has_threads = len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208 - as names
        if not is_daemon or has_threads or options.keys() != SPAWNED:
            return int(spawn(path, argv, env, **options))
        pid = os.fork()
        if pid == 0:
            os._exit(spawned(list(argv[2:]), dict(env), options))
        return pid

    os.posix_spawn = forked  # type: ignore[assignment]


def spawned(argv: list[str], env: dict[str, str], options: Mapping[str, Any]) -> int:
    """Run a module as a spawned program; return its exit code."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgid(0, options["setpgroup"])
    opened = [
        os.dup(action[1]) if action[0] == os.POSIX_SPAWN_DUP2 else os.open(*action[2:])
        for action in options["file_actions"]
    ]
    return become(opened, argv, os.getcwd(), env, False)  # noqa: PTH109 - as text


def set_title(argv: list[str]) -> None:
    """Make the command line in /proc that of the program, over the template's own long one."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = b"".join(word.encode() + b"\0" for word in (sys.executable, "-m", *argv))
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, line, min(len(line), end - start - 1))


def renew_streams(*, is_unbuffered: bool) -> None:
    """Make the standard streams anew, as an interpreter does at its start."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    for number, name in ((1, "stdout"), (2, "stderr")):
        by_line = number == 2 or os.isatty(number)
        stream: Any = os.fdopen(
            number,
            "w",
            buffering=1 if by_line else -1,
            errors="backslashreplace" if number == 2 else "strict",
            closefd=False,
        )
        if is_unbuffered:
            stream.reconfigure(write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(module: str) -> int:
    """Run the module as `python -m` does; return the exit code."""
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    return code & 0xFF


def main() -> NoReturn:
    """Load, and serve the socket whose descriptor is the first argument."""
    # Ctrl-C is for the tests' process, which closes the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()
    importlib.import_module("tests.harness.forked_start.popen")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
