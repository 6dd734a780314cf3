"""Tasks and offers."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount, Label, amount_view, labels_view
from croupier.api.isolation import (
    Isolation,
    Limits,
    Usage,
    isolation_view,
    limits_view,
    usage_view,
)
from croupier.api.times import milliseconds, seconds
from croupier.model.task import Reason, Source, TaskState
from croupier.v1 import operator_pb2 as pb


class Task(TypedDict):
    """A task.

    Attributes:
        framework_name: empty: unknown.
        agent_id: empty until it has one.
        hostname: of its agent; empty: unknown.
        state: such as `RUNNING`.
        time_ms: when it entered the state, in milliseconds since the epoch.
        since_ms: when the master got it; after a failover when it started, by the clock of its
            agent, or when the new master found it, whichever is earlier; None: unknown.
        submitted_ms: when it was submitted; None: unknown.
        placed_ms: when the master launched it on its agent; None: unknown.
        started_ms: when it started, by the clock of its agent; None: unknown.
        ended_ms: when it ended, by the clock of its agent; None: unknown.
        usage: what it has used, once it has ended; None: unknown.
        isolation: None unless it was requested.
        command: None unless it was requested and the task has one.
        shell: as `command`.
        secrets: names only.
        labels: None unless they were requested.
    """

    task_id: str
    name: str
    framework_id: str
    framework_name: str
    agent_id: str
    hostname: str
    role: str
    state: str
    reason: str
    source: str
    message: str
    exit_code: int | None
    signal: int | None
    pid: int
    time_ms: int
    since_ms: int | None
    submitted_ms: int | None
    placed_ms: int | None
    started_ms: int | None
    ended_ms: int | None
    resources: Amount
    limits: Limits
    usage: Usage | None
    isolation: Isolation | None
    command: list[str] | None
    shell: str | None
    secrets: list[str] | None
    labels: list[Label] | None


class Offer(TypedDict):
    """An outstanding offer.

    Attributes:
        lease_s: time until it expires.
        age_s: since it was made; None: unknown.
    """

    offer_id: str
    framework_id: str
    framework_name: str
    agent_id: str
    hostname: str
    role: str
    resources: Amount
    lease_s: float
    age_s: float | None


def task_view(task: pb.TaskView) -> Task:
    """Return one task; `isolation` to `labels` are None if they were not requested."""
    status, command = task.status, task.task.command
    return {
        "task_id": task.task.task_id,
        "name": task.task.name,
        "framework_id": task.framework_id,
        "framework_name": task.framework_name,
        "agent_id": task.agent_id,
        "hostname": task.hostname,
        "role": task.role,
        "state": _name(TaskState, status.state),
        "reason": _name(Reason, status.reason),
        "source": _name(Source, status.source),
        "message": status.message,
        "exit_code": status.exit_code if status.HasField("exit_code") else None,
        "signal": status.signal if status.HasField("signal") else None,
        "pid": status.pid,
        "time_ms": status.time_ms,
        "since_ms": task.since_ms or None,
        "submitted_ms": milliseconds(task, "submitted_ms"),
        "placed_ms": milliseconds(task, "placed_ms"),
        "started_ms": milliseconds(task, "started_ms"),
        "ended_ms": milliseconds(task, "ended_ms"),
        "resources": amount_view(task.task.resources),
        "limits": limits_view(task.task),
        "usage": usage_view(status.usage) if status.HasField("usage") else None,
        "isolation": isolation_view(task.task) if task.task.HasField("command") else None,
        "command": list(command.argv) or None,
        "shell": command.shell or None,
        # Names only: masters leave out the values.
        "secrets": sorted(command.secrets) or None,
        "labels": labels_view(task.task.labels) if task.task.HasField("command") else None,
    }


def offer_view(offer: pb.OfferView) -> Offer:
    """Return one outstanding offer."""
    return {
        "offer_id": offer.offer.offer_id,
        "framework_id": offer.framework_id,
        "framework_name": offer.framework_name,
        "agent_id": offer.offer.agent_id,
        "hostname": offer.hostname,
        "role": offer.offer.role,
        "resources": amount_view(offer.offer.resources),
        "lease_s": offer.offer.lease_ms / 1000,
        "age_s": seconds(offer, "age_ms"),
    }


def _name(kind: type[TaskState | Reason | Source], number: int) -> str:
    """Return the name of an enumeration's value; its number if only a newer master knows it."""
    try:
        return kind(number).name
    except ValueError:
        return str(number)
