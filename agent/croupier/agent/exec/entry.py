"""The launch of a command beside a live task, from what the agent knows of the task."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Final

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Adopting, Key, Starting
from croupier.agent.exec.command import ExecCommand
from croupier.agent.isolation.container import PREFIX as CONTAINER_PREFIX
from croupier.agent.isolation.launch import Launch
from croupier.agent.isolation.task_users import TaskUsers
from croupier.agent.sandbox import Sandboxes
from croupier.agent.secret_files import SecretFiles
from croupier.agent.shim.orphan_sweep import PREFIX
from croupier.agent.shim.own_words import read_own_words
from croupier.agent.task_environment import TaskEnvironment
from croupier.model.errors import NotFound, Unavailable
from croupier.model.secrets import DIRECTORY_VARIABLE

# Of variables of the task itself, of bubblewrap, and of a container runtime.
_PREFIXES: Final = ("", PREFIX, CONTAINER_PREFIX)


@dataclass(frozen=True, slots=True)
class Entries:
    """Makes launches that resemble those of the tasks, without making anything for them."""

    state: AgentState
    sandboxes: Sandboxes
    users: TaskUsers
    secret_files: SecretFiles
    environment: TaskEnvironment

    def launch(self, key: Key, command: ExecCommand, pid: int) -> Launch:
        """Return the launch of a command before isolators have changed it.

        Args:
            key: of the task.
            command: to run beside it.
            pid: of a process of the task, which has its secrets as variables.

        Raises:
            NotFound: if no such task lives here.
            Unavailable: if it has not started yet, or its user is unknown.
            InvalidRequest: if the account that it names may no longer run tasks.
        """
        task = self.state.tasks.get(key)
        if task is None or not task.is_live:
            raise NotFound(f"task {key[1]} does not run on this agent")
        if isinstance(task.phase, Starting | Adopting):
            raise Unavailable(f"task {key[1]} has not started yet; try again")
        info, run = task.info, task.run
        user = self.users.of(run, info.command.user)
        sandbox = self.sandboxes.path_of(key)
        environment = self.environment.of(self.state.agent_id, key, info, sandbox, user)
        if info.command.secrets and info.command.secret_files:
            environment[DIRECTORY_VARIABLE] = str(self.secret_files.root / run)
        elif info.command.secrets:
            environment |= _variables(pid, info.command.secrets.keys())
        if command.window is not None and command.terminal_type:
            environment["TERM"] = command.terminal_type
        argv = command.argv
        return Launch(run, key, info, sandbox, argv, environment, user, program=argv[0])


def _variables(pid: int, names: Collection[str]) -> dict[str, str]:
    """Return variables of a process; those that it has overwritten or hidden are missing."""
    try:
        content = b"\0" + read_own_words(f"/proc/{pid}/environ")
    except OSError:
        return {}
    found: dict[str, str] = {}
    # Without a list of all: the process may tell millions.
    for prefix, name in product(_PREFIXES, names):
        _, is_there, rest = content.partition(f"\0{prefix}{name}=".encode())
        if is_there:
            value = rest.partition(b"\0")[0].decode(errors="surrogateescape")
            found.setdefault(name, value)
    return found
