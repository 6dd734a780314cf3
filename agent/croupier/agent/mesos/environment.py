"""The environment of an executor of Mesos, and what its framework has said of it.

The `data` of such an executor is a JSON object with the `executor_info` and the `framework_info`
of Mesos; those of a task in it are its TaskInfo. Both are passed on as they are, as far as they are
there: what Croupier knows better replaces them.
"""

from __future__ import annotations

from typing import Final

from croupier.mesos import fields
from croupier.mesos.fields import Json
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.task import TaskInfo
from croupier.net.address import Address

# An executor without an agent gives up after this time.
RECOVERY: Final = "15mins"
LONGEST_BACKOFF: Final = "2secs"


def told_in(info: TaskInfo) -> Json:
    """Return the object in the data of a task; an empty one if there is none."""
    try:
        return fields.parse_object(info.data)
    except InvalidRequest:
        return {}


def executor_id_of(info: TaskInfo) -> str:
    """Return the id that an executor has in Mesos: the task's, unless its framework gave it one."""
    return fields.id_of(fields.entry(told_in(info), "executor_info"), "executor_id") or info.task_id


def variables(
    info: TaskInfo,
    framework_id: FrameworkId,
    agent_id: AgentId,
    sandbox: str,
    listen: Address,
    token: str,
) -> dict[str, str]:
    """Return the variables by which an executor of Mesos finds its agent."""
    return {
        "MESOS_AGENT_ENDPOINT": str(listen),
        "MESOS_FRAMEWORK_ID": framework_id,
        "MESOS_EXECUTOR_ID": executor_id_of(info),
        "MESOS_SLAVE_ID": agent_id,
        "MESOS_SLAVE_PID": f"slave(1)@{listen}",
        "MESOS_DIRECTORY": sandbox,
        "MESOS_SANDBOX": sandbox,
        # Absent is off: some clients take "0" for on.
        "MESOS_CHECKPOINT": "1",
        "MESOS_RECOVERY_TIMEOUT": RECOVERY,
        "MESOS_SUBSCRIPTION_BACKOFF_MAX": LONGEST_BACKOFF,
        "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": f"{info.grace_ms}ms",
        "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": token,
        "MESOS_HTTP_COMMAND_EXECUTOR": "0",
        "LIBPROCESS_PORT": "0",
    }


def executor_info(info: TaskInfo, framework_id: FrameworkId) -> Json:
    """Return the ExecutorInfo of an executor."""
    told = told_in(info)
    found = {
        "type": "CUSTOM",
        **fields.entry(told, "executor_info"),
        "executor_id": fields.made_id(executor_id_of(info)),
        "framework_id": fields.made_id(framework_id),
    }
    return found if told or not info.data else {**found, "data": fields.made_data(info.data)}


def framework_info(info: TaskInfo, framework_id: FrameworkId) -> Json:
    """Return the FrameworkInfo of an executor's framework."""
    told = fields.entry(told_in(info), "framework_info")
    return {"user": "", "name": "", **told, "id": fields.made_id(framework_id)}


def task_info(info: TaskInfo, agent_id: AgentId) -> Json:
    """Return the TaskInfo of a task in an executor."""
    told = told_in(info)
    found = {
        "resources": [
            fields.made_scalar(name, amount) | {"role": "*"}
            for name, amount in info.resources.scalars.items()
        ],
        **told,
        "name": told.get("name") or info.name or info.task_id,
        "task_id": fields.made_id(info.task_id),
        "agent_id": fields.made_id(agent_id),
    }
    if not told and info.data:
        found["data"] = fields.made_data(info.data)
    if not told and info.labels:
        found["labels"] = fields.made_labels(info.labels)
    return found
