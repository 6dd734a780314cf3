"""Executors of Mesos as tasks: what the gateway of a master writes, and the agent reads.

An executor of Mesos is a task with `ExecutorSpec.api` "mesos". Its `data` are JSON, with the
`ExecutorInfo` under `executor_info` and the `FrameworkInfo`, with its id, under `framework_info`.
The `data` of a task in it are its `TaskInfo` in JSON, as the framework has sent it.

The id of the task names the executor and its agent. A further part makes it unique, since ids of
tasks are never used again, and a framework may start an executor anew.
"""

from __future__ import annotations

from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.ids import MAX_ID_BYTES, TaskId

_PREFIX: Final = "executor:"


def executor_task_id(unique: str, executor_id: str, agent_id: str) -> TaskId:
    """Return the id of an executor's task, or raise InvalidRequest; `unique` has no colon."""
    made = f"{_PREFIX}{unique}:{executor_id}:{agent_id}"
    if len(made.encode(errors="replace")) > MAX_ID_BYTES:
        raise InvalidRequest(f"the id of executor {executor_id[:80]!r} is too long")
    return TaskId(made)


def executor_id_in(task_id: str, agent_id: str) -> str:
    """Return the id of the executor that a task is; empty if it is none, or of another agent."""
    end = f":{agent_id}"
    if not agent_id or not task_id.startswith(_PREFIX) or not task_id.endswith(end):
        return ""
    _, _, executor_id = task_id[len(_PREFIX) : -len(end)].partition(":")
    return executor_id
