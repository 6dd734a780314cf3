"""Flags of an agent for the isolation of its tasks, and for their Unix users."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from croupier.agent.isolation.isolator import AUTO, parse_levels
from croupier.agent.unix_user import ANY, DEFAULT_UIDS, UidRange
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Limits, format_limits, parse_limits
from croupier.model.limits import MIB
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar
from croupier.process.cli import read_by

OWN: Final = "own"


def parse_roots(text: str) -> tuple[Path, ...]:
    """Read absolute directories separated by commas; raises InvalidRequest for others, or /."""
    roots = tuple(Path(word) for word in text.split(",") if word)
    for root in roots:
        if not root.is_absolute() or os.path.normpath(root) == "/":
            raise InvalidRequest(f"{root}: give an absolute directory other than /")
    return roots


def parse_size(text: str) -> int:
    """Read disk space such as `10GB`, return bytes; raises InvalidRequest if not above 0."""
    try:
        given = Resources.parse(f"disk:{text}")
    except InvalidRequest as error:
        raise InvalidRequest(f"{text!r} is not an amount such as 10GB") from error
    size = given["disk"] * MIB // 1000
    if not size or set(given.scalars) != {"disk"} or given.ranges or given.sets:
        raise InvalidRequest(f"{text!r} is not an amount such as 10GB")
    return size


def format_size(size: int) -> str:
    """Return the text that `parse_size` reads."""
    return format_scalar("disk", size * 1000 // MIB)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationFlags:
    """How an agent isolates tasks, and the limits of tasks that name none."""

    isolation: Annotated[tuple[str, ...], read_by(parse_levels)] = (AUTO,)
    """Isolation of all tasks: some of process, cgroup, namespaces and container, separated by
    commas; the agent refuses to start if the machine lacks one. auto uses what the machine has,
    and none isolates nothing."""

    default_limits: Annotated[Limits, read_by(parse_limits, show_default=format_limits)] = Limits(  # noqa: RUF009
        pids=4096, files=65536
    )
    """Limits of tasks that name none, such as 'pids:4096;files:65536;mem:1GB'. disk is a quarter
    of the file system of the work dir, and no more than the agent has, unless this names another
    amount."""

    container_runtime: str = ""
    """Path or name of the OCI runtime for tasks with an image. Default: the first of runc and crun
    that can start a container."""

    image_roots: Annotated[tuple[Path, ...], read_by(parse_roots)] = ()
    """Directories, separated by commas, in which tasks may name root directories (dir:PATH) and OCI
    layouts (oci:PATH:TAG) as images. Who can write there can change what tasks run."""

    image_cache: Annotated[int, read_by(parse_size, show_default=format_size)] = 10 * 1024**3
    """Disk space for images that the agent has pulled, such as 10GB. The agent removes those that
    were not used for the longest time."""

    visible_paths: Annotated[tuple[Path, ...], read_by(parse_roots)] = (Path("/opt"), Path("/srv"))
    """Directories, separated by commas, that tasks in namespaces see, read-only, beside the system
    (/usr, /etc and the like): those of programs and data, such as /opt,/data. Unix sockets in them
    can be used."""

    cpu_quota: Literal["on", "off"] = "off"
    """Whether a task may never use more cpus than its resources state, even if others are idle.
    A task with a limit of cpus always keeps to that."""

    cgroup_parent: str = ""
    """Control group of version 2 in which tasks and their shims get groups, by its path below the
    mount, such as /system.slice/croupier-tasks.service. It must be delegated to the agent's user,
    and have no processes. Default: the agent's own group."""

    undealt_ports: Literal["allow", "refuse"] = "allow"
    """Whether a task may bind TCP ports that are not among its resources. refuse needs Landlock 4
    in the kernel (Linux 6.7)."""

    def __post_init__(self) -> None:
        if self.cgroup_parent and not self.cgroup_parent.startswith("/"):
            raise InvalidRequest("--cgroup-parent is a path below the mount: it begins with /")
        if self.undealt_ports == "refuse" and not {AUTO, "process"} & set(self.isolation):
            raise InvalidRequest("--undealt-ports refuse needs --isolation process")


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if text and not all(names):
        raise InvalidRequest(f"{text!r} is not a list NAME,NAME...")
    return names if text else ()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUserFlags:
    """The Unix users that tasks run as."""

    task_user: str | None = None
    """User of tasks that name none: own gives each task a uid of its own while it runs; else an
    account. Default: own for an agent that is root, else the agent's account."""

    task_uids: Annotated[UidRange, read_by(UidRange.parse)] = DEFAULT_UIDS
    """Uids, and gids, for --task-user own, FIRST-LAST: none of them may be in /etc/passwd,
    /etc/group, /etc/subuid or /etc/subgid. Agents on one machine may share them."""

    task_users: Annotated[tuple[str, ...], read_by(_parse_names)] = (ANY,)
    """Accounts that a task may name, separated by commas. * stands for all but root, which a list
    has to name: '*,root'. Only an agent that is root can run tasks as other accounts than its
    own."""

    @property
    def gives_own(self) -> bool:
        """Whether a task without a user gets a uid of its own."""
        return self.task_user == OWN or (self.task_user is None and os.geteuid() == 0)
