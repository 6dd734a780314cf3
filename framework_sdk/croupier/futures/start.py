"""The start of workers: the address that they reach, their tasks, and those that do not start."""

from __future__ import annotations

import os
import platform
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from croupier.futures.board import Progress
from croupier.futures.gate import Hello
from croupier.futures.remote.program import boot_source
from croupier.futures.shape import Shape
from croupier.sdk import Credentials, InvalidRequest, Reason, Task, TaskState, TaskStatus

_DEFAULT_MASTER: Final = "127.0.0.1:5050"
# Workers that end before they have connected, one after the other.
MAX_FAILURES: Final = 3
PAUSE_S: Final = 1.0
GRACE_S: Final = 3.0
# Exit code of a worker that cannot connect.
UNREACHABLE: Final = 113


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the executor listens, and the host that workers connect to.

    Attributes:
        listen: the address of an interface; empty for all.
        port: 0 for any that is free.
    """

    host: str
    listen: str
    port: int


def reach_of(address: str | None, listen: str | None, master: str | None) -> Reach:
    """Return where to listen: by default on the interface that leads to the master.

    Raises InvalidRequest if an address cannot be read.
    """
    host, port = _split(address) if address else (_way_to(master), 0)
    return Reach(host, host if listen is None else listen, port)


def _split(address: str) -> tuple[str, int]:
    """Read HOST, HOST:PORT, [IPV6] or [IPV6]:PORT."""
    text = address.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or _is_ip(text):
        host, port = text, "0"
    try:
        number = int(port)
    except ValueError:
        number = -1
    host = host.removeprefix("[").removesuffix("]")
    if not host or not 0 <= number <= 65535:
        raise InvalidRequest(f"address must be HOST or HOST:PORT, not {address!r}")
    if _is_ip(host) and ip_address(host).is_unspecified:
        raise InvalidRequest(
            f"workers cannot connect to {host}: give a name or an address, and listen={host!r}"
        )
    return host, number


def _way_to(master: str | None) -> str:
    """Return this machine's address on the way to the master."""
    first = (master or os.environ.get("CROUPIER_MASTER") or _DEFAULT_MASTER).split(",")[0].strip()
    host = first.rpartition(":")[0] or first
    host = host.removeprefix("[").removesuffix("]")
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            found: str = probe.getsockname()[0]
            return found
    except OSError:
        return "127.0.0.1"


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """The settings of an executor, of its framework and of its workers.

    Attributes:
        name: as of `Framework`, like the next four.
        env: variables to add to the agent's environment.
        user: account that workers run as; empty for the one that the agent gives.
        setup: the pickled initializer of workers.
        on_progress: called when the numbers have changed.
    """

    name: str
    role: str | None
    master: str | None
    credentials: Credentials | None
    insecure: bool
    env: Mapping[str, str]
    user: str
    reach: Reach
    max_workers: int
    idle_s: float
    max_bytes: int
    setup: bytes
    on_progress: Callable[[Progress], None] | None

    def task(self, task_id: str, shape: Shape, given: str = "{}") -> Task:
        """Return the task of a worker; `given` is secret."""
        return Task(
            [shape.python, "-u", "-c", boot_source()],
            resources=shape.resources,
            task_id=task_id,
            name=self.name,
            env=self.env,
            secrets={"CROUPIER_FUTURES": given},
            user=self.user,
            grace_s=GRACE_S,
            limits=shape.limits,
            image=shape.image,
        )


class StartFailures:
    """Counts workers that end before they have connected."""

    def __init__(self) -> None:
        self.count = 0
        self._pause_until = 0.0

    @property
    def pause_s(self) -> float:
        """Time before the next worker is started."""
        return PAUSE_S if self.count else 0.0

    def may_start(self, now: float) -> bool:
        """Return whether workers may be launched: not just after one failed."""
        return now >= self._pause_until

    def on_success(self) -> None:
        """Record that a worker has started."""
        self.count = 0

    def on_failure(self, status: TaskStatus, now: float = 0.0) -> bool:
        """Record that a worker failed to start; return whether to start no more."""
        ended = status.state in (TaskState.FAILED, TaskState.FINISHED, TaskState.ERROR)
        if not ended or status.reason.is_blameless:
            return False
        self.count += 1
        self._pause_until = now + PAUSE_S
        return self.count >= MAX_FAILURES


def start_hint(status: TaskStatus, reach: Reach) -> str:
    """Return what to do about a worker that did not connect."""
    if status.exit_code == UNREACHABLE:
        return (
            f". It could not connect to {reach.host}: give an address of this machine that agents"
            " can reach (address=HOST or HOST:PORT)"
        )
    if status.reason is Reason.CONTAINER_LAUNCH_FAILED:
        return f". Name a Python that agents have (python=PATH){private_python_hint()}"
    return f". Its stderr is in the sandbox of the task{private_python_hint()}"


def same_python(hello: Hello) -> str:
    """Return why a worker's Python is of no use, or nothing."""
    here = sys.implementation.name, sys.version_info[:2]
    if (hello.implementation, hello.minor) == here:
        return ""
    return (
        f"the worker on {hello.host} runs {hello.implementation} {hello.python}, this program"
        f" {here[0]} {platform.python_version()}: pickles need the same minor version. Name one"
        " (python=PATH), or restrict the agents (constraints=...)"
    )


def private_python_hint(executable: str = sys.executable) -> str:
    """Return what to append to why a worker did not start; empty if all users may run the Python.

    It looks at this machine, where the Python of workers is the same by default.
    """
    given = Path(executable).absolute()
    for folder in (*given.parents, *given.resolve().parents):
        try:
            mode = folder.stat().st_mode
        except OSError:
            return ""
        if not mode & stat.S_IXOTH:
            return (
                f". Other users may not enter {folder}, and an agent that is root gives each task"
                f" a user of its own: chmod o+x {folder}, or on your own machine croupier local"
                " --task-user root"
            )
    return ""
