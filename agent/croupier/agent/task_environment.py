"""The variables of a task: the agent's, overridden by the task's own."""

from __future__ import annotations

import os
from itertools import chain, islice
from typing import Final

from croupier.agent.core.tasks import Key
from croupier.agent.unix_user import UnixUser
from croupier.model.ids import AgentId
from croupier.model.task import TaskInfo

MAX_PORT_VARIABLES: Final = 100
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class TaskEnvironment:
    """Makes the variables of tasks, without their secrets."""

    def __init__(self) -> None:
        """Keep a few variables of this process for tasks."""
        self._kept = {"PATH": _DEFAULT_PATH} | {n: os.environ[n] for n in _KEPT if n in os.environ}

    def of(
        self, agent_id: AgentId, key: Key, task: TaskInfo, sandbox: str, user: UnixUser | None
    ) -> dict[str, str]:
        """Return the variables of every task, overridden by its own."""
        return {
            **self._kept,
            "HOME": sandbox,
            "TMPDIR": sandbox,
            "CROUPIER_AGENT_ID": agent_id,
            "CROUPIER_FRAMEWORK_ID": key[0],
            "CROUPIER_TASK_ID": key[1],
            "CROUPIER_SANDBOX": sandbox,
            **_ports(task),
            **({} if user is None else {"USER": user.name, "LOGNAME": user.name}),
            **task.command.environment,
        }


def _ports(task: TaskInfo) -> dict[str, str]:
    ranges = task.resources.ranges.get("ports", ())
    numbers = chain.from_iterable(range(begin, end + 1) for begin, end in ranges)
    return {f"PORT{n}": str(p) for n, p in enumerate(islice(numbers, MAX_PORT_VARIABLES))}
