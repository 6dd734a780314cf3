"""Acknowledgements of updates, and updates that are sent again."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGKILL, SIGTERM
from typing import assert_never

from croupier.agent.core import effects as fx
from croupier.agent.core.events import Now
from croupier.agent.core.kills import kill_task
from croupier.agent.core.on_executor import on_kill_ignored, on_late
from croupier.agent.core.on_group import forget_group
from croupier.agent.core.records import AcknowledgedRecord, ForgetTask
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Due, InExecutor, Key, KillOrder, LocalTask
from croupier.model.ids import FrameworkId
from croupier.model.task import Reason


def on_acknowledge(state: AgentState, key: Key, sequence: int, now: Now) -> Iterator[fx.Effect]:
    """Drop the updates up to `sequence`; forget a task whose last update this is."""
    task = state.tasks.get(key)
    count = task.updates.acknowledge(sequence) if task else 0
    if task is None or not count:
        return
    # A number above the last one acknowledges no update that is still to come.
    sequence = min(sequence, task.updates.sequence)
    yield fx.Acknowledged(count)
    # Lazy: if the record is lost with the agent, the update is only sent again.
    if task.updates.waiting or task.is_live:
        yield fx.Checkpoint(AcknowledgedRecord(*key, sequence), lazy=True)
    if task.updates.waiting:
        _restart_resending(state, task, now)
        return
    state.deadlines.cancel((Due.RESEND, key))
    if not task.is_live:
        ended_group = state.remove(task)
        yield fx.Checkpoint(ForgetTask(*key), lazy=True)
        yield fx.Forget(key)
        if ended_group is not None:
            yield from forget_group(ended_group)


def on_resend(state: AgentState, framework_id: FrameworkId, now: Now) -> Iterator[fx.Effect]:
    """Send all unacknowledged updates of a framework's tasks again. O(tasks)."""
    if state.session is None:
        return
    for task in state.tasks.values():
        if task.framework_id == framework_id and task.updates.waiting:
            _restart_resending(state, task, now)
            yield fx.SendUpdates(state.session, tuple(task.updates.waiting), again=True)


def on_deadline_passed(state: AgentState, now: Now) -> Iterator[fx.Effect]:
    """Act on every deadline that has passed."""
    for due, key in state.deadlines.due(now.at):
        task = state.tasks[key]
        match due:
            case Due.KILL if isinstance(task.phase, InExecutor):
                yield from on_kill_ignored(state, task, now)
            case Due.KILL:
                yield fx.Signal(key, task.pid, SIGKILL)
            case Due.TERMINATE:
                yield fx.Signal(key, task.pid, SIGTERM)
            case Due.REGISTRATION:
                yield from on_late(state, task, now)
            case Due.COMPLETION:
                order = KillOrder(Reason.TIMED_OUT, task.info.grace_ms)
                yield from kill_task(state, task, order, now)
            case Due.RESEND:
                assert state.session is not None
                state.deadlines.set((due, key), now.at + task.updates.put_off_resending())
                yield fx.SendUpdates(state.session, tuple(task.updates.waiting), again=True)
            case _:
                assert_never(due)


def _restart_resending(state: AgentState, task: LocalTask, now: Now) -> None:
    """Wait the shortest time again for an acknowledgement."""
    if state.session is not None:
        state.deadlines.set((Due.RESEND, task.key), now.at + task.updates.restart_resending())
