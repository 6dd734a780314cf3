"""Tasks and offers."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount, Label
from croupier.api.isolation import Isolation, Limits, Usage
from croupier.api.objects import as_object, makes
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


@makes(Task)
def task_view(task: pb.TaskView) -> Task:
    """Return one task; `isolation` to `labels` are None if they were not requested."""
    info, status, command = task.task, task.status, task.task.command
    is_whole = info.HasField("command")
    return as_object(
        Task,
        task,
        info,
        status,
        state=_name(TaskState, status.state),
        reason=_name(Reason, status.reason),
        source=_name(Source, status.source),
        limits=as_object(Limits, info.limits, info),
        isolation=as_object(Isolation, info.isolation) if is_whole else None,
        command=list(command.argv) or None,
        shell=command.shell or None,
        # Names only: masters leave out the values.
        secrets=sorted(command.secrets) or None,
        labels=[as_object(Label, each) for each in info.labels] if is_whole else None,
    )


def offer_view(offer: pb.OfferView) -> Offer:
    """Return one outstanding offer."""
    return as_object(Offer, offer, offer.offer)


def _name(kind: type[TaskState | Reason | Source], number: int) -> str:
    """Return the name of an enumeration's value; its number if only a newer master knows it."""
    try:
        return kind(number).name
    except ValueError:
        return str(number)
