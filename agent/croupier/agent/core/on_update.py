"""Updates that are acknowledged, or not."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import (
    Acknowledged,
    Checkpoint,
    Effect,
    Force,
    Forget,
    SendUpdates,
    Signal,
)
from croupier.agent.core.events import Now
from croupier.agent.core.records import AcknowledgedRecord, ForgetTask
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key, Task
from croupier.model.ids import FrameworkId


def on_acknowledge(state: AgentState, key: Key, sequence: int, now: Now) -> Iterator[Effect]:
    """The framework has the updates up to `sequence`; the last one of a task ends its story."""
    task = state.tasks.get(key)
    count = task.updates.acknowledge(sequence) if task else 0
    if task is None or not count:
        return
    # A number above all that were given acknowledges those, and none that is yet to come.
    sequence = min(sequence, task.updates.sequence)
    yield Acknowledged(count)
    # Lazily: one that is lost with the agent makes the agent ask for it again.
    if task.updates.waiting or task.is_live:
        yield Checkpoint(AcknowledgedRecord(*key, sequence), lazy=True)
    if task.updates.waiting:
        _watch_for_silence(state, task, now)
        return
    state.deadlines.cancel(("resend", key))
    if not task.is_live:
        del state.tasks[key]
        yield Checkpoint(ForgetTask(*key), lazy=True)
        yield Forget(key)


def on_resend(state: AgentState, framework_id: FrameworkId, now: Now) -> Iterator[Effect]:
    """Send again what the framework may have missed. O(tasks)."""
    if state.session is None:
        return
    for task in state.tasks.values():
        if task.framework_id == framework_id and task.updates.waiting:
            _watch_for_silence(state, task, now)
            yield SendUpdates(state.session, tuple(task.updates.waiting), again=True)


def on_deadline_passed(state: AgentState, now: Now) -> Iterator[Effect]:
    """Do what has come due: force an end, or say again what nobody has acknowledged."""
    for kind, key in state.deadlines.due(now.at):
        task = state.tasks[key]
        if kind == "kill":
            yield Signal(key, task.pid, Force.KILL)
        else:
            assert state.session is not None
            at = now.at + task.updates.put_off_resending()
            state.deadlines.set(("resend", key), at)
            yield SendUpdates(state.session, tuple(task.updates.waiting), again=True)


def _watch_for_silence(state: AgentState, task: Task, now: Now) -> None:
    """Begin anew to wait for an acknowledgement."""
    if state.session is not None:
        state.deadlines.set(("resend", task.key), now.at + task.updates.restart_resending())
