"""The namespaces of a task in a box or a container, found through its first process inside.

Rule: the process is known by a pidfd, which was opened while it was a child of the task's first
process outside, and that a child of the task's shim. So no other process can take its place.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.agent.shim.shim_process import ShimProcess
from croupier.agent.shim.start import move_up
from croupier.model.errors import Unavailable

# The flags of setns by the names in /proc/PID/ns. The user namespace comes last.
KINDS: Final = {
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "net": 0x40000000,
    "cgroup": 0x02000000,
    "time": 0x00000080,
}
_USER: Final = 0x10000000
# Without these, a command would see files or processes of the machine.
_NEEDED: Final = KINDS["mnt"] | KINDS["pid"]
_NS_GET_USERNS: Final = 0xB701


@dataclass(frozen=True, slots=True)
class Inside:
    """The namespaces of a task.

    Attributes:
        pid: of the first process inside.
        target: a pidfd of it.
        owner: a descriptor of the user namespace that owns the others; -1: the machine's.
        kinds: which of them differ from those of the agent, as flags of setns.
    """

    pid: int
    target: int
    owner: int
    kinds: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors for the shim, in their order."""
        return (self.target,) if self.owner < 0 else (self.target, self.owner)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the shim."""
        join = f"join={self.kinds:x}"
        return (join,) if self.owner < 0 else (join, "owner")

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.descriptors:
            os.close(fd)


def find_inside(running: ShimProcess) -> Inside:
    """Return the namespaces of a task.

    Raises:
        Unavailable: if the task has not started in them yet, or has just ended.
        OSError: if the machine refuses.
    """
    for pid in children(running.pid):
        target = -1
        with suppress(ProcessLookupError, FileNotFoundError):
            target = move_up(os.pidfd_open(pid))
        if target < 0:
            continue
        try:
            # Its program has started once it has a child.
            if _is_first(pid) and any(children(pid)) and _descends(pid, running):
                return _inside(pid, target)
        except BaseException as error:
            os.close(target)
            if isinstance(error, ProcessLookupError | FileNotFoundError):
                continue
            raise
        os.close(target)
    raise Unavailable("the task has not started in its namespaces yet, or has ended; try again")


def children(pid: int) -> Iterator[int]:
    """Yield the children of a process with one thread; none if it has ended.

    Raises:
        Unavailable: if the kernel does not tell.
    """
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        yield from map(int, path.read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        if not Path("/proc/self/task", str(os.getpid()), "children").exists():
            raise Unavailable("this kernel does not tell the children of processes") from None


def _inside(pid: int, target: int) -> Inside:
    kinds = 0
    for name, flag in KINDS.items():
        with suppress(FileNotFoundError):
            kinds |= flag if _number(pid, name) != _number(os.getpid(), name) else 0
    if kinds & _NEEDED != _NEEDED:
        raise Unavailable("the task has no namespaces of its own")
    owner = _owner(pid)
    if owner >= 0 and os.fstat(owner).st_ino != _number(pid, "user"):
        kinds |= _USER
    if select.select([target], (), (), 0)[0]:
        if owner >= 0:
            os.close(owner)
        raise ProcessLookupError
    return Inside(pid, target, owner, kinds)


def _owner(pid: int) -> int:
    """Return a descriptor of the user namespace that owns the mounts; -1: the agent's own."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        owner = move_up(fcntl.ioctl(mounts, _NS_GET_USERNS))
    finally:
        os.close(mounts)
    if os.fstat(owner).st_ino == _number(os.getpid(), "user"):
        os.close(owner)
        return -1
    return owner


def _number(pid: int, name: str) -> int:
    return os.stat(f"/proc/{pid}/ns/{name}").st_ino  # noqa: PTH116 - not a file


def _is_first(pid: int) -> bool:
    """Return whether the process is the first one of a pid namespace."""
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1"


def _descends(pid: int, running: ShimProcess) -> bool:
    """Return whether the process is a grandchild of the shim, which lives."""
    is_grandchild = _parent(pid) == running.pid and _parent(running.pid) == running.shim
    return is_grandchild and not select.select([running.pidfd], (), (), 0)[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
