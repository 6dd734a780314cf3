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


def environment_of(
    agent_id: AgentId, key: Key, task: TaskInfo, sandbox: str, user: UnixUser | None
) -> dict[str, str]:
    """Return the variables of every task, without its secrets, overridden by its own."""
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
        **({} if user is None else {"USER": user.name, "LOGNAME": user.name}),
        **task.command.environment,
    }


def _ports(task: TaskInfo) -> dict[str, str]:
    ranges = task.resources.ranges.get("ports", ())
    numbers = chain.from_iterable(range(begin, end + 1) for begin, end in ranges)
    return {f"PORT{n}": str(p) for n, p in enumerate(islice(numbers, MAX_PORT_VARIABLES))}
