"""Tasks of Mesos, as messages of Croupier.

Only the form changes here: the usual conversion and the core check the task. What Croupier does not
have is refused, so that no task runs other than its framework has described it.
"""

from __future__ import annotations

import math
from typing import Final

from croupier.master.mesos.amounts import resources_from_json
from croupier.mesos import fields
from croupier.mesos.fields import Json
from croupier.model.errors import InvalidRequest
from croupier.model.ids import MAX_ID_BYTES, TaskId
from croupier.model.task_checks import MAX_GRACE_MS
from croupier.v1 import task_pb2 as pb
from croupier.v1.resources_pb2 import Resources
from croupier.wire.resources import resources_to_wire

# The id of a task that is an executor names the executor and its agent. A further part makes it
# unique: ids of tasks are never used again, and a framework may start an executor anew.
_PREFIX: Final = "executor:"
MAX_MS: Final = 2**53
# Fields of a task, and of its command and container, that change how it runs.
_REFUSED: Final = {
    "health_check": "health checks are not supported",
    "check": "checks are not supported",
}
_LIMITS: Final = {"cpus": "cpus_milli", "mem": "mem_milli"}


def task_from_json(of: Json) -> pb.TaskInfo:
    """Return the message for a TaskInfo of Mesos; of one with an executor, without a program.

    Raises:
        InvalidRequest: if it is malformed, or asks for what is not supported.
    """
    for field, why in _REFUSED.items():
        if of.get(field) is not None:
            raise InvalidRequest(why)
    if executor_id_in(fields.id_of(of, "task_id"), fields.id_of(of, "agent_id")):
        raise InvalidRequest("the task id has the form of those of executors")
    if bool(fields.entry(of, "command")) == bool(fields.entry(of, "executor")):
        raise InvalidRequest("a task must have either a command or an executor")
    if fields.entry(of, "executor"):
        task = pb.TaskInfo(resources=_resources(of))
    else:
        task = program_from_json(of)
    task.task_id, task.name = fields.id_of(of, "task_id"), fields.text(of, "name")
    for key, value in fields.labels_of(of):
        task.labels.add(key=key, value=value)
    task.max_completion_ms = duration_ms(fields.entry(of, "max_completion_time"))
    policy = kill_policy_from_json(fields.entry(of, "kill_policy"))
    if policy is not None:
        task.kill_policy.CopyFrom(policy)
    return task


def program_from_json(of: Json) -> pb.TaskInfo:
    """Return the program of a TaskInfo or an ExecutorInfo: command, container and resources.

    Raises:
        InvalidRequest: as `task_from_json`.
    """
    task = pb.TaskInfo(resources=_resources(of))
    _read_container(task, fields.entry(of, "container"))
    _read_command(task.command, fields.entry(of, "command"))
    for name, limit in fields.entry(of, "limits").items():
        if name not in _LIMITS or not isinstance(limit, dict):
            raise InvalidRequest(f"a limit of {name[:80]} is not supported")
        if (amount := fields.number(limit, "value", math.nan)) != math.inf:
            setattr(task.limits, _LIMITS[name], fields.milli(amount))
    return task


def kill_policy_from_json(of: Json) -> pb.KillPolicy | None:
    """Return a kill policy, of at most a day; None if it has no grace period."""
    if of.get("grace_period") is None:
        return None
    return pb.KillPolicy(grace_ms=min(duration_ms(fields.entry(of, "grace_period")), MAX_GRACE_MS))


def duration_ms(of: Json) -> int:
    """Return a duration in milliseconds; raises InvalidRequest if it is negative."""
    nanoseconds = fields.integer(of, "nanoseconds")
    if nanoseconds < 0:
        raise InvalidRequest("a duration is negative")
    return min(-(-nanoseconds // fields.NANOSECONDS_PER_MS), MAX_MS)


def _resources(of: Json) -> Resources:
    return resources_to_wire(resources_from_json(fields.entries(of, "resources")))


def _read_command(command: pb.Command, of: Json) -> None:
    if fields.entries(of, "uris"):
        raise InvalidRequest("URIs are not supported: the command must fetch what it needs")
    value, arguments = fields.text(of, "value"), fields.texts(of, "arguments")
    if fields.flag(of, "shell", default=True):
        command.shell = value
    elif value:
        # The first argument is the name under which the program runs.
        command.argv.extend([value, *arguments[1:]])
    command.user = fields.text(of, "user")
    for each in fields.entries(of, "environment", "variables"):
        if fields.text(each, "type", "VALUE") != "VALUE":
            raise InvalidRequest("variables of the type SECRET are not supported")
        command.environment[fields.text(each, "name")] = fields.text(each, "value")


def _read_container(task: pb.TaskInfo, of: Json) -> None:
    """Read the image; volumes, networks and parameters of containers are refused."""
    for field in ("volumes", "network_infos", "rlimit_info", "tty_info", "linux_info"):
        if of.get(field):
            raise InvalidRequest(f"{field} of a container are not supported")
    docker, mesos = fields.entry(of, "docker"), fields.entry(of, "mesos", "image")
    if docker.get("parameters") or docker.get("port_mappings") or fields.flag(docker, "privileged"):
        raise InvalidRequest("parameters, port mappings and privileges of Docker are not supported")
    if (network := fields.text(docker, "network", "HOST")) not in ("HOST", "NONE"):
        raise InvalidRequest(f"the network {network[:80]} of Docker is not supported")
    image = fields.text(docker, "image") or fields.text(fields.entry(mesos, "docker"), "name")
    if mesos and not image:
        raise InvalidRequest("images of this type are not supported; give one of Docker")
    if image:
        task.isolation.image = f"docker://{image}"
        task.isolation.no_network = network == "NONE"


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
