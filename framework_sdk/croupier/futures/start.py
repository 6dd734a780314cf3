"""The start of workers: their tasks, their Python, and what to do when they do not start."""

from __future__ import annotations

import platform
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from croupier.futures.gate import Hello
from croupier.futures.reach import Reach
from croupier.futures.remote.program import boot_source
from croupier.futures.shape import Shape
from croupier.sdk import Reason, Task, TaskState, TaskStatus

# Workers that end before they have connected, one after the other.
MAX_FAILURES: Final = 3
PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """What all workers of an executor have in common.

    Attributes:
        env: variables to add to the agent's environment.
        user: account to run as; empty for the one that the agent gives.
    """

    # Exit code of a worker that cannot connect.
    UNREACHABLE: ClassVar[int] = 113

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    grace_s: float = 3.0

    def task(self, task_id: str, shape: Shape, given: str) -> Task:
        """Return the task of a worker; `given` is secret."""
        return Task(
            [shape.python, "-u", "-c", boot_source()],
            resources=shape.resources,
            task_id=task_id,
            name=self.name,
            env=self.env,
            secrets={"CROUPIER_FUTURES": given},
            user=self.user,
            grace_s=self.grace_s,
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
        """Record that one has not; return whether to start no more."""
        ended = status.state in (TaskState.FAILED, TaskState.FINISHED, TaskState.ERROR)
        if not ended or status.reason.is_blameless:
            return False
        self.count += 1
        self._pause_until = now + PAUSE_S
        return self.count >= MAX_FAILURES


def start_hint(status: TaskStatus, reach: Reach) -> str:
    """Return what to do about a worker that did not connect."""
    if status.exit_code == WorkerLaunch.UNREACHABLE:
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
