"""Commands beside tasks that an earlier life of the agent has started, perhaps with other flags.

Rule: a command never has more rights than its task. The agent does not record what it has taken
from a task, so it reads what the kernel tells of the task's program. Ports that Landlock refuses
are not told; there, the present flag counts.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from croupier.agent.exec.inside import Inside, children
from croupier.agent.isolation.launch import Launch
from croupier.model.errors import Unavailable

_LIMIT: Final = "limit="
_BOUNDING: Final = "bounding="
_LIMITS: Final = 16
_WHY: Final = "the agent was started again with other flags, or the task has changed that"


def lowered(launch: Launch, pid: int, inside: Inside | None) -> Launch:
    """Return the launch with the limits of the task; check that it exceeds no right of it.

    Args:
        launch: of the command, as isolators have changed it.
        pid: of the first process of the task, outside of its namespaces.
        inside: the namespaces that the command enters.

    Raises:
        Unavailable: if the command would have more rights, with the right that it would exceed.
        OSError: if the task has ended.
    """
    program = pid if inside is None else next(children(inside.pid), pid)
    exceeded = next(_exceeded(launch, pid, program), "")
    if exceeded:
        raise Unavailable(f"a command would not have {exceeded} of the task: {_WHY}")
    kept = tuple(each for each in launch.options if not each.startswith(_LIMIT))
    return launch.with_options((*kept, *_limits(program)))


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
    if not launch.joins and any(_is_apart(each) for each in children(pid)):
        yield "the namespaces"


def _limits(pid: int) -> Iterator[str]:
    """Return the limits of a process as options of the shim."""
    for number in range(_LIMITS):
        soft, hard = resource.prlimit(pid, number)
        if (soft, hard) != resource.getrlimit(number):
            yield f"{_LIMIT}{number}:{_unsigned(soft)}:{_unsigned(hard)}"


def _unsigned(limit: int) -> int:
    return limit % (1 << 64)


def _has(launch: Launch, option: str) -> bool:
    return any(each.startswith(option) for each in launch.options)


def _bounding(launch: Launch) -> int:
    """Return the capabilities that a command of root could have."""
    kept = [each.removeprefix(_BOUNDING) for each in launch.options if each.startswith(_BOUNDING)]
    return min((int(each, 16) for each in kept), default=int(_status(os.getpid())["CapBnd"], 16))


def _is_apart(pid: int) -> bool:
    return len(_status(pid)["NSpid"].split()) > 1


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
