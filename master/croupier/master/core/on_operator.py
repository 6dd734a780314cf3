"""What operators do."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core.effects import Answer, Effect
from croupier.master.core.events import OperatorKill
from croupier.master.core.on_task import kill
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound
from croupier.model.task import Reason, check_grace


def on_operator_kill(state: State, event: OperatorKill, now: float) -> Iterator[Effect]:
    """Have a task ended; answer with the task or an error."""
    found = _find(state, event)
    if isinstance(found, Task):
        yield from kill(state, found, event.grace_ms, Reason.KILLED_BY_OPERATOR, now)
    yield Answer(event.request, found)


def _find(state: State, event: OperatorKill) -> Task | CroupierError:
    try:
        check_grace(event.grace_ms or 0)
    except InvalidRequest as refusal:
        return refusal
    named = [
        framework.tasks[event.task_id]
        for framework in state.frameworks.values()
        if event.task_id in framework.tasks and event.framework_id in ("", framework.framework_id)
    ]
    ended = [
        record
        for record in state.ended
        if record.info.task_id == event.task_id and event.framework_id in ("", record.framework_id)
    ]
    if not named and ended:
        return Conflict(f"task {event.task_id} has ended: {ended[-1].status.state.name}")
    if not named:
        return NotFound(f"no task {event.task_id!r}")
    if len(named) > 1:
        return InvalidRequest(f"several frameworks have a task {event.task_id!r}; name one")
    if named[0].state.is_terminal:
        return Conflict(f"task {event.task_id} has ended: {named[0].state.name}")
    return named[0]
