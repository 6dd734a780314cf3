"""Starts a task: its user, sandbox, environment and command line."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import chain, islice

from croupier.agent.core.events import LaunchFailed
from croupier.agent.core.tasks import Key
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shim.launch_errors import cannot_start
from croupier.agent.supervisor import Supervisor
from croupier.agent.unix_user import find_user
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.task import Command, TaskInfo

MAX_PORT_VARIABLES = 100
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")
# Another task has put something in the place of the sandbox.
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Launcher:
    """Starts tasks."""

    def __init__(
        self, sandboxes: Sandboxes, supervisor: Supervisor, failed: Callable[[str], None]
    ) -> None:
        """Start them under `supervisor`; call `failed` with the step that failed."""
        self._sandboxes, self._supervisor, self._failed = sandboxes, supervisor, failed
        self._kept = {"PATH": _DEFAULT_PATH} | {n: os.environ[n] for n in _KEPT if n in os.environ}

    def has_sandbox(self, order: LaunchTask) -> bool:
        """Whether there is a sandbox of the task that is to be launched."""
        return self._sandboxes.has((order.framework_id, order.task.task_id))

    def launch(
        self, agent_id: AgentId, key: Key, task: TaskInfo, run: str, *, again: bool = False
    ) -> LaunchFailed | None:
        """Start the task's process as the run of that name; the supervisor reports the rest.

        Takes about half a millisecond. With `again`, a new sandbox replaces one that exists;
        else an existing one is an error.
        """
        try:
            user = find_user(task.command.user)
        except InvalidRequest as error:
            return self._fail(key, "user", str(error))
        argv = _argv(task.command)
        opened = False
        try:
            with self._sandboxes.create(key, user, again=again) as sandbox:
                opened = True
                environment = self._environment(agent_id, key, task, sandbox.path)
                if user is not None:
                    environment |= {"USER": user.name, "LOGNAME": user.name}
                environment |= task.command.environment
                self._supervisor.spawn(key, run, argv, environment, sandbox, user)
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

    def _fail(self, key: Key, step: str, message: str, cause: str = "") -> LaunchFailed:
        self._failed(step)
        return LaunchFailed(key, message, cause=cause)

    def _environment(
        self, agent_id: AgentId, key: Key, task: TaskInfo, directory: str
    ) -> dict[str, str]:
        """Return the variables that every task gets; its own override them."""
        return {
            **self._kept,
            "HOME": directory,
            "CROUPIER_AGENT_ID": agent_id,
            "CROUPIER_FRAMEWORK_ID": key[0],
            "CROUPIER_TASK_ID": key[1],
            "CROUPIER_SANDBOX": directory,
            **_ports(task),
        }


def _argv(command: Command) -> list[str]:
    return ["/bin/sh", "-c", command.shell] if command.shell else list(command.argv)


def _ports(task: TaskInfo) -> dict[str, str]:
    ranges = task.resources.ranges.get("ports", ())
    numbers = chain.from_iterable(range(begin, end + 1) for begin, end in ranges)
    return {f"PORT{n}": str(p) for n, p in enumerate(islice(numbers, MAX_PORT_VARIABLES))}


def _text(error: OSError) -> str:
    return error.strerror or str(error)
