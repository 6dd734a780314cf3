"""From a task to a process: its account, its sandbox, its environment, its words."""

from __future__ import annotations

import errno
import os
import pwd
import sys
from collections.abc import Mapping
from itertools import chain, islice

from croupier.agent import become
from croupier.agent.core.tasks import Key
from croupier.agent.sandbox import Owner, Sandbox, Sandboxes
from croupier.agent.supervisor import Supervisor
from croupier.agent.watchdog import VARIABLE
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.task import Command, TaskInfo

MAX_PORT_VARIABLES = 100
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHIM = (sys.executable, "-I", "-S", become.__file__)
_WHY = {
    errno.ENOENT: "no such program, or its interpreter is missing",
    errno.ENOEXEC: "exec format error: neither a program of this machine nor a script with #!",
    errno.EACCES: "permission denied: it is not executable",
}


class CannotLaunch(Exception):
    """There is no process; the step that failed is user, sandbox or exec."""

    def __init__(self, step: str, message: str) -> None:
        """`message` is for the task's framework."""
        super().__init__(message)
        self.step, self.message = step, message


class Launcher:
    """Starts tasks."""

    def __init__(self, sandboxes: Sandboxes, supervisor: Supervisor, run_id: str) -> None:
        """Mark every process with `run_id`, for the watchdog."""
        self._sandboxes, self._supervisor, self._run_id = sandboxes, supervisor, run_id
        self._kept = {"PATH": _DEFAULT_PATH} | {n: os.environ[n] for n in _KEPT if n in os.environ}

    def launch(self, agent_id: AgentId, framework_id: FrameworkId, task: TaskInfo) -> int:
        """Start the task's process; its pid. Takes about half a millisecond.

        Raises:
            CannotLaunch: if that fails, with what its framework should be told.
        """
        key: Key = (framework_id, task.task_id)
        account = _account(task.command.user)
        owner = Owner(account.pw_uid, account.pw_gid) if account else None
        argv = _argv(task.command)
        try:
            with self._sandboxes.create(key, owner) as sandbox:
                given = self._given(agent_id, key, task, sandbox.path)
                asked = task.command.environment
                if account is not None:
                    given |= {"USER": account.pw_name, "LOGNAME": account.pw_name}
                    asked = {become.PREFIX + name: value for name, value in asked.items()}
                    argv = [*_SHIM, account.pw_name, "--", *argv]
                environment = {**given, **asked, VARIABLE: self._run_id}
                return self._spawn(key, argv, environment, sandbox)
        except OSError as error:
            raise CannotLaunch("sandbox", f"cannot make the sandbox: {_text(error)}") from error

    def _spawn(
        self, key: Key, argv: list[str], environment: Mapping[str, str], sandbox: Sandbox
    ) -> int:
        program = argv[0]
        try:
            return self._supervisor.spawn(key, argv, environment, sandbox)
        except OSError as error:
            why = _WHY.get(error.errno or 0) or _text(error)
            raise CannotLaunch("exec", f"cannot run {program!r}: {why}") from error
        except ValueError as error:
            # Words or variables that no process can be given, such as lone surrogates.
            raise CannotLaunch("exec", f"cannot run {program!r}: {error}") from error

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


def _account(user: str) -> pwd.struct_passwd | None:
    """The account to become; None if the agent's own will do."""
    if not user:
        return None
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise CannotLaunch("user", f"there is no user {user!r} on this agent") from None
    if account.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        message = f"cannot run as {user!r}: the agent does not run as root"
        raise CannotLaunch("user", message)
    return account


def _text(error: OSError) -> str:
    return error.strerror or str(error)
