"""The namespaces and the rights of a task, for a command beside it.

Rules:
- The first process inside is known by a pidfd, which was opened while it was a child of the task's
  first process outside, and that a child of the task's shim. So no other can take its place.
- A command never has more rights than its task. An earlier life of the agent may have started that
  with other flags, and the agent does not record what it has taken from it. So it reads what the
  kernel tells of the task's program. Ports that Landlock refuses are not told; there, the present
  flag counts.
- The shim inside is a copy in memory that no process can change. A program in the namespaces can
  find the file that the shim was started from, as /proc/PID/exe or by a script for
  "/proc/self/exe", and a task of the agent's user could write to it.

Functions raise OSError if the system refuses what they need.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from croupier.agent.directories import closing
from croupier.agent.isolation.isolator import Launch
from croupier.agent.shim.shim_process import ShimProcess
from croupier.agent.shim.start import move_up
from croupier.model.errors import Unavailable

_EXEC: Final = 0x10
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
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
_LIMIT: Final = "limit="
_BOUNDING: Final = "bounding="
_LIMITS: Final = 16
_WHY: Final = "the agent was started again with other flags, or the task has changed that"


def sealed_copy(program: Path) -> int:
    """Return a descriptor of the copy, which this user alone may execute."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("croupier-shim", flags | _EXEC)
    except OSError as error:
        # A kernel before Linux 6.3.
        if error.errno != errno.EINVAL:
            raise
        fd = os.memfd_create("croupier-shim", flags)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(program.read_bytes())
        os.fchmod(fd, 0o500)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


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

    Raises Unavailable if the task has not started in them yet, or has just ended.
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

    Raises Unavailable if the kernel does not tell.
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
    with closing(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)) as mounts:
        owner = move_up(fcntl.ioctl(mounts, _NS_GET_USERNS))
    if os.fstat(owner).st_ino == _number(os.getpid(), "user"):
        os.close(owner)
        return -1
    return owner


def _number(pid: int, name: str) -> int:
    return os.stat(f"/proc/{pid}/ns/{name}").st_ino  # noqa: PTH116 - not a file


def _is_first(pid: int) -> bool:
    numbers = _status(pid).get("NSpid", "").split()
    return len(numbers) > 1 and numbers[-1] == "1"


def _descends(pid: int, running: ShimProcess) -> bool:
    """Return whether the process is a grandchild of the shim, which lives."""
    is_grandchild = _parent(pid) == running.pid and _parent(running.pid) == running.shim
    return is_grandchild and not select.select([running.pidfd], (), (), 0)[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def lowered(launch: Launch, pid: int, inside: Inside | None) -> Launch:
    """Return the launch with the limits of the task; check that it exceeds no right of it.

    Args:
        launch: of the command, as isolators have changed it.
        pid: of the first process of the task, outside of its namespaces.
        inside: the namespaces that the command enters.

    Raises:
        Unavailable: if the command would have more rights, with the right that it would exceed.
    """
    program = pid if inside is None else next(children(inside.pid), pid)
    exceeded = next(_exceeded(launch, pid, program), "")
    if exceeded:
        raise Unavailable(f"a command would not have {exceeded} of the task: {_WHY}")
    kept = tuple(each for each in launch.options if not each.startswith(_LIMIT))
    return replace(launch, options=(*kept, *_limits(program)))


def _exceeded(launch: Launch, pid: int, program: int) -> Iterator[str]:
    status = _status(program)
    user = launch.user
    uid, gid = (os.geteuid(), os.getegid()) if user is None else (user.uid, user.gid)
    groups = os.getgroups() if user is None else user.groups
    if (status["Uid"].split()[0], status["Gid"].split()[0]) != (str(uid), str(gid)):
        yield "the user"
    if not set(map(str, groups)) <= set(status["Groups"].split()):
        yield "the groups"
    if int(status["NoNewPrivs"]) and "no-new-privs" not in launch.options:
        yield "the restrictions"
    if int(status["Seccomp"]) and not _has(launch, "seccomp="):
        yield "the filter of system calls"
    if uid == 0 and _bounding(launch) & ~int(status["CapBnd"], 16):
        yield "the capabilities"
    if f"/{launch.run}\n" in Path(f"/proc/{pid}/cgroup").read_text() and not _has(launch, "group="):
        yield "the control group"
    if not launch.joins and any(len(_status(each)["NSpid"].split()) > 1 for each in children(pid)):
        yield "the namespaces"


def _limits(pid: int) -> Iterator[str]:
    for number in range(_LIMITS):
        soft, hard = resource.prlimit(pid, number)
        if (soft, hard) != resource.getrlimit(number):
            # The largest number stands for no limit, as in C.
            yield f"{_LIMIT}{number}:{soft % (1 << 64)}:{hard % (1 << 64)}"


def _has(launch: Launch, option: str) -> bool:
    return any(each.startswith(option) for each in launch.options)


def _bounding(launch: Launch) -> int:
    """Return the capabilities that a command of root could have."""
    kept = [each.removeprefix(_BOUNDING) for each in launch.options if each.startswith(_BOUNDING)]
    return min((int(each, 16) for each in kept), default=int(_status(os.getpid())["CapBnd"], 16))


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
