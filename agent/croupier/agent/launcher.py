"""From a task to a process: its account, its sandbox, its environment, its words."""

from __future__ import annotations

import errno
import os
from itertools import chain, islice

from croupier.agent.core.events import Launch
from croupier.agent.core.tasks import Key
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shim.launch_errors import cannot_start
from croupier.agent.supervisor import Supervisor
from croupier.agent.unix_user import find_account
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.task import Command, TaskInfo

MAX_PORT_VARIABLES = 100
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")
# Something is where the sandbox would be: another task has put it there.
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotLaunch(Exception):
    """There is no process; the step that failed is user, sandbox or exec."""

    def __init__(self, step: str, message: str, cause: str = "") -> None:
        """`message` is for the task's framework; `cause` is what failed on the agent, if it did."""
        super().__init__(message)
        self.step, self.message, self.cause = step, message, cause


class Launcher:
    """Starts tasks."""

    def __init__(self, sandboxes: Sandboxes, supervisor: Supervisor) -> None:
        """Start them under `supervisor`."""
        self._sandboxes, self._supervisor = sandboxes, supervisor
        self._kept = {"PATH": _DEFAULT_PATH} | {n: os.environ[n] for n in _KEPT if n in os.environ}

    def has_sandbox(self, order: Launch) -> bool:
        """Whether there is a sandbox of the task that is to be launched."""
        return self._sandboxes.has((order.framework_id, order.task.task_id))

    def launch(
        self,
        agent_id: AgentId,
        framework_id: FrameworkId,
        task: TaskInfo,
        run: str,
        *,
        again: bool = False,
    ) -> None:
        """Start the task's process as the run of that name; the supervisor says what comes of it.

        Takes about half a millisecond. If it is done `again`, a sandbox that is there already
        makes way for a new one; else it is an error.

        Raises:
            CannotLaunch: if nothing will come of it, with what its framework should be told.
        """
        key: Key = (framework_id, task.task_id)
        try:
            account = find_account(task.command.user)
        except InvalidRequest as error:
            raise CannotLaunch("user", str(error)) from None
        argv = _argv(task.command)
        opened = False
        try:
            with self._sandboxes.create(key, account, again=again) as sandbox:
                opened = True
                environment = self._given(agent_id, key, task, sandbox.path)
                if account is not None:
                    environment |= {"USER": account.name, "LOGNAME": account.name}
                environment |= task.command.environment
                self._supervisor.spawn(key, run, argv, environment, sandbox, account)
        except OSError as error:
            if not opened:
                message = f"cannot make the sandbox: {_text(error)}"
                cause = "" if error.errno in _IN_THE_WAY else message
                raise CannotLaunch("sandbox", message, cause) from error
            cause = "" if error.errno == errno.E2BIG else f"cannot start a shim: {_text(error)}"
            raise CannotLaunch("exec", cannot_start(argv[0], error), cause) from error
        except ValueError as error:
            # Words or variables that no process can be given, such as lone surrogates.
            raise CannotLaunch("exec", f"cannot run {argv[0]!r}: {error}") from error

    def _given(self, agent_id: AgentId, key: Key, task: TaskInfo, directory: str) -> dict[str, str]:
        """The variables that every task finds, before those it asks for."""
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
