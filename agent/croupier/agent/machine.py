"""This machine, as the reactor uses it: launches, processes, sandboxes and health checks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from signal import Signals
from typing import Final

from croupier.agent.core.effects import CheckHealth, CloseExecutor, Spawn, ToExecutor
from croupier.agent.core.events import Adopted, Exited, LaunchFailed, Vanished
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import GroupKey, Key
from croupier.agent.devices import variables
from croupier.agent.executors.service import ExecutorServer
from croupier.agent.health_check import HealthCheck
from croupier.agent.isolation.image_pulls import Pulls
from croupier.agent.isolation.isolator import Launch, Layers
from croupier.agent.isolation.task_users import TaskUsers
from croupier.agent.janitor import Janitor
from croupier.agent.output_trim import OutputTrim
from croupier.agent.sandbox import Sandboxes
from croupier.agent.secret_files import SecretFiles, SecretsUndeliverable
from croupier.agent.shared_directories import SharedDirectories
from croupier.agent.shim.start import cannot_start
from croupier.agent.supervisor import Supervisor
from croupier.agent.unix_user import UnixUser
from croupier.agent.volumes import Volumes
from croupier.model.agent_orders import LaunchTask, SetVolume
from croupier.model.devices import Inventory
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.gang import HOSTFILE, HOSTFILE_VARIABLE
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.secrets import DIRECTORY_VARIABLE
from croupier.model.task import TaskInfo
from croupier.model.task_group import GROUP_DIRECTORY

MAX_PORT_VARIABLES: Final = 100
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Errors of a sandbox that another task has replaced.
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)


def environment_of(
    agent_id: AgentId,
    key: Key,
    task: TaskInfo,
    sandbox: str,
    user: UnixUser | None,
    inventory: Inventory | None = None,
) -> dict[str, str]:
    """Return the variables of every task, without its secrets, overridden by its own.

    Its own do not override those of the agent's named devices.
    """
    return {
        "PATH": _DEFAULT_PATH,
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        "HOME": sandbox,
        "TMPDIR": sandbox,
        "CROUPIER_AGENT_ID": agent_id,
        "CROUPIER_FRAMEWORK_ID": key[0],
        "CROUPIER_TASK_ID": key[1],
        "CROUPIER_SANDBOX": sandbox,
        **_ports(task),
        **_gang(task, sandbox),
        **({} if user is None else {"USER": user.name, "LOGNAME": user.name}),
        **task.command.environment,
        **variables(inventory, task.resources),
    }


def _ports(task: TaskInfo) -> dict[str, str]:
    ranges = task.resources.ranges.get("ports", ())
    numbers = chain.from_iterable(range(begin, end + 1) for begin, end in ranges)
    return {f"PORT{n}": str(p) for n, p in enumerate(islice(numbers, MAX_PORT_VARIABLES))}


def _gang(task: TaskInfo, sandbox: str) -> dict[str, str]:
    """Return the variables of a member of a gang."""
    if task.gang is None or not task.gang.hosts:
        return {}
    return {**task.gang.variables(), HOSTFILE_VARIABLE: f"{sandbox}/{HOSTFILE}"}


def _write_hostfile(task: TaskInfo, home: int) -> None:
    """Write the hosts of a gang into the sandbox of a member, which is open as `home`."""
    if task.gang is not None and task.gang.hosts:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(HOSTFILE, flags, 0o644, dir_fd=home), "w") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(task.gang.hostfile())


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """The `Machine` of the real reactor. It owns none of its parts.

    Attributes:
        failed: called with the step of each failed launch: user, sandbox, secrets, isolation, exec.
        pulls: fetches images; None: tasks cannot have some.
        output: bounds the output of tasks.
        groups: has the directories that tasks of a group share.
        volumes: has the directories of volumes.
        executors: the server for executors.
    """

    sandboxes: Sandboxes
    supervisor: Supervisor
    janitor: Janitor
    health_check: HealthCheck
    secret_files: SecretFiles
    isolation: Layers
    users: TaskUsers
    failed: Callable[[str], None]
    pulls: Pulls | None
    output: OutputTrim
    groups: SharedDirectories
    volumes: Volumes
    executors: ExecutorServer

    def has_sandbox(self, order: LaunchTask) -> bool:
        """Return whether the task has a sandbox already."""
        return self.sandboxes.has((order.framework_id, order.task.task_id))

    def launch(self, state: AgentState, spawn: Spawn) -> LaunchFailed | None:
        """Start a task's process; the supervisor reports the rest unless this fails.

        Takes about half a millisecond. With `again`, a new sandbox replaces an existing one; else
        an existing one is an error.
        """
        key, info = spawn.key, state.tasks[spawn.key].info
        image = info.isolation.image
        try:
            if image and self.pulls is not None and self.pulls.has_to_wait(spawn, image):
                return None
        except InvalidRequest as error:
            return self._fail(key, "isolation", str(error))
        try:
            user = self.users.take(key, spawn.run, info.command.user)
        except InvalidRequest as error:
            return self._fail(key, "user", str(error))
        except Unavailable as error:
            return self._fail(key, "user", str(error), str(error))
        command = info.command
        argv = ("/bin/sh", "-c", command.shell) if command.shell else command.argv
        opened = False
        try:
            with self.sandboxes.create(key, user, again=spawn.again) as sandbox:
                opened = True
                _write_hostfile(info, sandbox.home)
                environment = environment_of(
                    state.agent_id, key, info, sandbox.path, user, state.inventory
                )
                launch = Launch(
                    spawn.run, key, info, sandbox.path, argv, environment, user, program=argv[0]
                )
                launch = self._with_group(launch, state.tasks[key].group)
                launch = self._with_volumes(launch, key[0], sandbox.home)
                launch = self._with_secrets(self._as_executor(launch), spawn)
                self.supervisor.spawn(self._isolated(launch), sandbox)
                self.output.add(key, info)
        except Unavailable as error:
            return self._fail(key, "isolation", str(error), str(error))
        except InvalidRequest as error:
            return self._fail(key, "isolation", str(error))
        except SecretsUndeliverable as error:
            return self._fail(key, "secrets", str(error))
        except OSError as error:
            if not opened:
                message = f"cannot make the sandbox: {_text(error)}"
                cause = "" if error.errno in _IN_THE_WAY else message
                return self._fail(key, "sandbox", message, cause)
            cause = "" if error.errno == errno.E2BIG else f"cannot start a shim: {_text(error)}"
            return self._fail(key, "exec", cannot_start(argv[0], error), cause)
        except ValueError as error:
            # Arguments or variables that no process can be given, such as lone surrogates.
            return self._fail(key, "exec", f"cannot run {argv[0]!r}: {error}")
        return None

    def cancel(self, key: Key) -> bool:
        """Forget a launch that waits for an image; return whether there was one."""
        return self.pulls is not None and self.pulls.cancel(key)

    def adopt(self, key: Key, run: str) -> Adopted | Exited | LaunchFailed | Vanished:
        """Determine the state of a run of an earlier agent."""
        try:
            answer = self.supervisor.adopt(key, run)
            if isinstance(answer, Vanished) and answer.never_started:
                # The task may be started now, as the same run.
                self.supervisor.forget(run)
        except OSError as error:
            raise Unavailable(f"cannot look at run {run} of task {key[1]}: {error}") from error
        return answer

    def signal(self, key: Key, number: Signals) -> None:
        """Signal a task's processes; no effect if they have ended."""
        self.supervisor.signal(key, number)

    def forget_run(self, run: str) -> None:
        """Remove a run's file and secrets; if that fails, the next agent does when it starts."""
        with suppress(OSError):
            self.secret_files.remove(run)
        with suppress(OSError):
            self.isolation.forget(run)
        with suppress(OSError):
            self.supervisor.forget(run)
        self.users.release(run)

    def retire(self, key: Key) -> None:
        """Release the sandbox of a task that the agent has forgotten."""
        self.janitor.retire(key)

    def forget_group(self, group: GroupKey) -> None:
        """Remove the directory that the tasks of a group shared."""
        with suppress(OSError):
            self.groups.remove(group)

    def set_volume(self, order: SetVolume) -> None:
        """Make the directory of a volume, if there is none, or remove it."""
        self.volumes.set(order)

    def to_executor(self, effect: ToExecutor | CloseExecutor) -> None:
        """Send a message on the stream of an executor, or end the stream."""
        self.executors.streams.perform(effect)

    def check_health(self, wanted: CheckHealth) -> None:
        """Plan a health check; it replaces a planned one."""
        self.health_check.ask(wanted)

    def _fail(self, key: Key, step: str, message: str, cause: str = "") -> LaunchFailed:
        self.failed(step)
        return LaunchFailed(key, message, cause=cause)

    def _isolated(self, launch: Launch) -> Launch:
        try:
            return self.isolation.prepare(launch)
        except OSError as error:
            raise Unavailable(f"cannot isolate the task: {_text(error)}") from error

    def _with_group(self, launch: Launch, group: GroupKey | None) -> Launch:
        """Give the task the directory of its group, if it is in one."""
        if group is None:
            return launch
        path = self.groups.make(group)
        environment = {**launch.environment, GROUP_DIRECTORY: path}
        return replace(launch, environment=environment, shared=(*launch.shared, path))

    def _with_volumes(self, launch: Launch, framework_id: FrameworkId, home: int) -> Launch:
        """Give the task its volumes: links in its sandbox, open as `home`."""
        shared, read_only = list(launch.shared), list(launch.read_only)
        for mount in launch.info.volumes:
            path = self.volumes.path(mount.volume(framework_id))
            os.symlink(path, mount.path, dir_fd=home)
            (read_only if mount.read_only else shared).append(path)
        return replace(launch, shared=tuple(shared), read_only=tuple(read_only))

    def _with_secrets(self, launch: Launch, spawn: Spawn) -> Launch:
        """Deliver the task's secrets as variables or files."""
        if not spawn.secrets:
            return launch
        directory, variables = "", spawn.secrets.reveal()
        if launch.info.command.secret_files:
            directory = str(self.secret_files.write(spawn.run, spawn.secrets, launch.user))
            variables = {DIRECTORY_VARIABLE: directory}
        read_only = (*launch.read_only, directory) if directory else launch.read_only
        return replace(launch, environment={**launch.environment, **variables}, read_only=read_only)

    def _as_executor(self, launch: Launch) -> Launch:
        """Tell an executor how to reach this agent."""
        if launch.info.executor is None:
            return launch
        return self.executors.introduced(launch)


def _text(error: OSError) -> str:
    return error.strerror or str(error)
