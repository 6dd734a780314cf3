"""What a task that runs has used so far, as its agent measures it now."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.api.isolation import task_use_view
from croupier.ctl.connection import Master
from croupier.ctl.views.amounts import View
from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb


@dataclass(frozen=True, slots=True)
class LiveUse:
    """What the master says about a task that runs.

    Attributes:
        usage: what it has used so far; None if that is unknown.
        limits: those that its agent enforces, as in `limits_view`.
        problem: the reason if something is unknown; else empty.
    """

    usage: View | None = None
    limits: View = field(default_factory=dict)
    problem: str = ""


async def live_usage(master: Master, task: View) -> LiveUse:
    """Ask the master, which asks the agent of the task."""
    ids = {name: task[name] for name in ("framework_id", "task_id", "agent_id")}
    try:
        answer = await master.ask(master.service.GetTaskUse, pb.GetTaskUseRequest(**ids))
    except CroupierError as error:
        return LiveUse(problem=str(error))
    use = task_use_view(answer)
    limits = {name: value for name, value in use["limits"].items() if value}
    is_measured = use["usage"] is not None
    return LiveUse(use["usage"], limits, "" if is_measured else "its agent does not measure tasks")
