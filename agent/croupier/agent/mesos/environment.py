"""The environment of an executor of Mesos, and what its framework has said of it.

The `data` of such an executor is a JSON object with the `executor_info` and the `framework_info`
of Mesos; those of a task in it are its TaskInfo. Both are passed on as they are, as far as they are
there: what Croupier knows better replaces them.
"""

from __future__ import annotations

from typing import Any, Final

from croupier.mesos.fields import Json, entry, id_of, made_data, made_id, parse_object, unmilli
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
        return parse_object(info.data)
    except InvalidRequest:
        return {}


def executor_id_of(info: TaskInfo) -> str:
    """Return the id that an executor has in Mesos: the task's, unless its framework gave it one."""
    return id_of(entry(told_in(info), "executor_info"), "executor_id") or info.task_id


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
    told = dict(entry(told_in(info), "executor_info"))
    told.setdefault("type", "CUSTOM")
    told |= {
        "executor_id": made_id(executor_id_of(info)),
        "framework_id": made_id(framework_id),
    }
    if not told_in(info) and info.data:
        told["data"] = made_data(info.data)
    return told


def framework_info(info: TaskInfo, framework_id: FrameworkId) -> Json:
    """Return the FrameworkInfo of an executor's framework."""
    told: Json = {"user": "", "name": "", **entry(told_in(info), "framework_info")}
    return {**told, "id": made_id(framework_id)}


def task_info(info: TaskInfo, agent_id: AgentId) -> Json:
    """Return the TaskInfo of a task in an executor."""
    told = told_in(info)
    own: Json = {
        "name": told.get("name") or info.name or info.task_id,
        "task_id": made_id(info.task_id),
        "agent_id": made_id(agent_id),
    }
    if "resources" not in told:
        own["resources"] = [_scalar(*each) for each in info.resources.scalars.items()]
    if not told and info.data:
        own["data"] = made_data(info.data)
    if not told and info.labels:
        own["labels"] = {"labels": [{"key": key, "value": each} for key, each in info.labels]}
    return {**told, **own}


def _scalar(name: str, amount: int) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "role": "*", "scalar": {"value": unmilli(amount)}}
