"""A supervisor with a directory of its own, and all its reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from croupier.agent.core.events import NO_ENDING, Adopted, Exited, LaunchFailed, Started, Vanished
from croupier.agent.core.tasks import Key
from croupier.agent.isolation.isolator import NO_ISOLATION, Launch, Layers
from croupier.agent.run_ends import RunEvent
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shim.build import Shim
from croupier.agent.supervisor import Supervisor
from croupier.agent.unix_user import UnixUser
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import NO_LIMITS, Limits
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.eventually import eventually
from tests.harness.processes import read_pid
from tests.harness.uml import NO_AVX

Report = TypeVar("Report", bound=Adopted | Exited | LaunchFailed | Started | Vanished)
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def key(name: str) -> Key:
    return (FrameworkId("F1"), TaskId(name))


def launch_of(
    name: str,
    *argv: str,
    environment: Mapping[str, str] = PATH,
    user: UnixUser | None = None,
    options: tuple[str, ...] = (),
) -> Launch:
    """Return the launch of a task; its run has the name of the task."""
    info = TaskInfo(TaskId(name), Command(argv), NOTHING)
    return Launch(name, key(name), info, "", argv, environment, user, options, argv[0])


def without_usage(answer: Report) -> Report:
    """Return a report without what was measured."""
    return replace(answer, ending=NO_ENDING) if isinstance(answer, Exited) else answer


class TaskRunner:
    """Starts tasks under a shim; the run of a task has the name of the task."""

    def __init__(
        self, work: Path, shim: Shim, runs: Path | None = None, isolation: Layers = NO_ISOLATION
    ) -> None:
        self.isolation = isolation
        self.work, self.shim, self.runs = work, shim, runs or work / "runs"
        (work / "sandboxes").mkdir(exist_ok=True)
        self.sandboxes = Sandboxes(work / "sandboxes")
        self.reports: list[RunEvent] = []
        self.failed: list[str] = []
        self.supervisor = Supervisor(
            self.runs, self.sandboxes, shim, self.reports.append, self.failed.append, isolation
        )

    def spawn(
        self,
        name: str,
        *argv: str,
        environment: Mapping[str, str] = PATH,
        account: UnixUser | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """Start a task; `options` are the shim's."""
        launch = launch_of(name, *argv, user=account, environment=environment, options=options)
        with self.sandboxes.create(key(name), account, again=True) as sandbox:
            self.supervisor.spawn(launch, sandbox)

    def limited(self, name: str, line: str, resources: str, limits: Limits = NO_LIMITS) -> None:
        """Start a task from a shell line, isolated by its resources and limits."""
        # In a guest, programs may have to do without AVX.
        tunables = {each: os.environ[each] for each in NO_AVX if each in os.environ}
        launch = launch_of(name, "/bin/sh", "-c", line, environment={**PATH, **tunables})
        info = replace(launch.info, resources=Resources.parse(resources), limits=limits)
        with self.sandboxes.create(key(name), None, again=True) as sandbox:
            launch = replace(launch, info=info, sandbox=sandbox.path)
            self.supervisor.spawn(self.isolation.prepare(launch), sandbox)

    def shell(self, name: str, line: str, *options: str) -> None:
        """Start a task from a shell line."""
        self.spawn(name, "/bin/sh", "-c", line, options=options)

    def adopt(self, name: str) -> Adopted | Exited | LaunchFailed | Vanished:
        """Adopt a task; return its state without what was measured."""
        return without_usage(self.supervisor.adopt(key(name), name))

    async def started(self, name: str) -> int:
        """Wait for the start; return the task's pid."""
        await eventually(lambda: self._of(name, Started), what=f"{name} starts")
        start = self._of(name, Started)[0]
        assert isinstance(start, Started)
        return start.pid

    async def ended(self, name: str) -> Exited | LaunchFailed:
        """Wait for the only end, and return it without what was measured."""
        return without_usage(await self.measured(name))

    async def measured(self, name: str) -> Exited | LaunchFailed:
        """Wait for the only end, and return it."""
        kinds = (Exited, LaunchFailed)
        await eventually(lambda: self._of(name, *kinds), 60, what=f"{name} ends")
        (end,) = self._of(name, *kinds)
        assert isinstance(end, kinds)
        return end

    async def pid_in(self, name: str, file: str) -> int:
        """Wait for a pid that the task writes to a file in its sandbox, and return it."""
        path = self.home(name) / file
        await eventually(lambda: read_pid(path), what=f"{path} is written")
        pid = read_pid(path)
        assert pid is not None
        return pid

    def home(self, name: str) -> Path:
        """Return the task's sandbox."""
        return Path(self.sandboxes.path_of(key(name)))

    def printed(self, name: str, stream: str = "stdout") -> str:
        """Return the task's output; a task that has written nothing has no file."""
        path = self.home(name) / stream
        return path.read_text() if path.exists() else ""

    def shim_of(self, name: str) -> int:
        """Return the pid of the task's shim from the run file."""
        words = (self.runs / name).read_text()[64:128].split()
        assert words[0] == "shim"
        return int(words[1])

    def only_shim(self) -> int:
        """Return the pid of the only shim."""
        (shim,) = self.supervisor._keys
        return shim

    def _of(self, name: str, *kinds: type[RunEvent]) -> list[RunEvent]:
        return [each for each in self.reports if each.key == key(name) and isinstance(each, kinds)]
